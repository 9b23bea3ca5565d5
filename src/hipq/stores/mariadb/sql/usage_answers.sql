-- The answers of each of these tenants that no job has taken: only their rows are read (index hipq_answers_tenant).
SELECT tenant, count(*), CAST(sum(octet_length(data)) AS SIGNED) FROM hipq_answers FORCE INDEX (hipq_answers_tenant)
WHERE tenant {in text tenants} AND tenant <> '' AND queue = {number}
  AND state IN ({NEW}, {BUFFERED}, {DUPLICATE}, {CONFLICT}, {LATE}, {UNREADABLE}) GROUP BY tenant
