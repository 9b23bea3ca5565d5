-- What so many ended jobs of a tenant take, from one on: payload, result and history (a range of the index _tenant).
SELECT count(*), coalesce(sum(size), 0)::bigint, coalesce(max(id), 0) FROM (
  SELECT f.id, octet_length(f.result) + octet_length(f.history) + coalesce(octet_length(coalesce(
    nullif(f.job_data, ''), (SELECT p.data FROM hipq_payloads p WHERE f.job_data = '' AND p.id = f.id)
  )), 0) AS size FROM {final} f
  WHERE (tenant, id) > (%(tenant)s, %(after)s) AND (tenant, id) <= (%(tenant)s, 9223372036854775807) AND tenant <> ''
  ORDER BY tenant, id LIMIT %(rows)s
) AS found
