-- What so many ended jobs of a tenant take, from one on: payload, result and history (index _tenant).
SELECT count(*), coalesce(sum(size), 0), coalesce(max(id), 0) FROM (
  SELECT f.id, length(CAST(coalesce(nullif(f.job_data, ''), p.data, '') AS BLOB)) + length(CAST(f.result AS BLOB))
    + length(CAST(f.history AS BLOB)) AS size
  FROM {final} f INDEXED BY {final}_tenant LEFT JOIN hipq_payloads p ON p.id = f.id AND f.job_data = ''
  WHERE f.tenant = :tenant AND f.tenant <> '' AND f.id > :after ORDER BY f.id LIMIT :rows
)
