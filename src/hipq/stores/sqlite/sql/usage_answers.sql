-- The answers of each of these tenants that no job has taken: only their rows are read (index hipq_answers_tenant).
SELECT w.value, count(*), sum(length(CAST(a.data AS BLOB)))
FROM json_each(:tenants) w CROSS JOIN hipq_answers a INDEXED BY hipq_answers_tenant
  ON a.tenant = w.value AND a.tenant <> ''
WHERE a.queue = {number} AND a.state IN ({NEW}, {BUFFERED}, {DUPLICATE}, {CONFLICT}, {LATE}, {UNREADABLE}) GROUP BY w.value
