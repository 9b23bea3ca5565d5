-- As census_final.sql, with what the jobs take: payload, result and history (a range of the index _tenant).
SELECT job_type, state, phase, count(*), max(id), sum(size)::bigint FROM (
  SELECT f.id, job_type, state, phase, octet_length(f.result) + octet_length(f.history) + coalesce(octet_length(coalesce(
    nullif(f.job_data, ''), (SELECT p.data FROM hipq_payloads p WHERE f.job_data = '' AND p.id = f.id)
  )), 0) AS size FROM {final} f
  WHERE (tenant, id) > (:tenant, :after) AND (tenant, id) <= (:tenant, 9223372036854775807) AND tenant <> ''
  ORDER BY tenant, id LIMIT :rows
) AS found GROUP BY job_type, state, phase
