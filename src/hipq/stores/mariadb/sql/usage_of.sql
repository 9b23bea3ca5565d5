-- What each of these tenants has that is not final: only their rows are read (index _tenant).
SELECT tenant, count(*), CAST(coalesce(sum(octet_length(coalesce(nullif(job_data, ''), p.data))), 0) AS SIGNED)
FROM {live} l FORCE INDEX ({live}_tenant) LEFT JOIN hipq_payloads p ON p.id = l.id AND l.job_data = ''
WHERE tenant {in text tenants} AND tenant <> '' GROUP BY tenant
