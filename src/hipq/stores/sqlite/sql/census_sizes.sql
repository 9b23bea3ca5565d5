-- As census_final.sql, with what the jobs take: payload, result and history (index _tenant).
SELECT job_type, state, phase, count(*), max(id), sum(size) FROM (
  SELECT f.id, f.job_type, f.state, f.phase, length(CAST(coalesce(nullif(f.job_data, ''), p.data, '') AS BLOB))
    + length(CAST(f.result AS BLOB)) + length(CAST(f.history AS BLOB)) AS size
  FROM {final} f INDEXED BY {final}_tenant LEFT JOIN hipq_payloads p ON p.id = f.id AND f.job_data = ''
  WHERE f.tenant = :tenant AND f.tenant <> '' AND f.id > :after ORDER BY f.id LIMIT :rows
) GROUP BY job_type, state, phase
