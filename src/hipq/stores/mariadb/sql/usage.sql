-- What each tenant has that is not final: all live rows are read, and those of the side table.
SELECT tenant, count(*), CAST(coalesce(sum(octet_length(coalesce(nullif(job_data, ''), p.data))), 0) AS SIGNED)
FROM {live} l LEFT JOIN hipq_payloads p ON p.id = l.id AND l.job_data = '' GROUP BY tenant
