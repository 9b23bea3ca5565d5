-- As census_final.sql, with what the jobs take: payload, result and history (index _tenant).
SELECT job_type, state, phase, count(*), max(id), CAST(sum(size) AS SIGNED) FROM (
  SELECT f.id, f.job_type, f.state, f.phase, octet_length(coalesce(nullif(f.job_data, ''), p.data, ''))
    + octet_length(f.result) + octet_length(f.history) AS size
  FROM {final} f FORCE INDEX ({final}_tenant) LEFT JOIN hipq_payloads p ON p.id = f.id AND f.job_data = ''
  WHERE f.tenant = :tenant AND f.tenant <> '' AND f.id > :after ORDER BY f.id LIMIT :rows
) AS found GROUP BY job_type, state, phase
