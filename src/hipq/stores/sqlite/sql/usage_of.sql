-- What each of these tenants has that is not final: only their rows are read (index _tenant).
SELECT w.value, count(*), coalesce(sum(length(CAST(coalesce(nullif(l.job_data, ''), p.data) AS BLOB))), 0)
FROM json_each(:tenants) w CROSS JOIN {live} l INDEXED BY {live}_tenant ON l.tenant = w.value AND l.tenant <> ''
LEFT JOIN hipq_payloads p ON p.id = l.id AND l.job_data = '' GROUP BY w.value
