-- What each of these tenants has that is not final: only their rows are read, by ranges of the index _tenant (see
-- `listing` for why they are spelled so).
SELECT w.tenant, used.jobs, used.size FROM unnest(:tenants::text[]) AS w (tenant) CROSS JOIN LATERAL (
  SELECT count(*) AS jobs, coalesce(sum(octet_length(coalesce(
    nullif(l.job_data, ''), (SELECT p.data FROM hipq_payloads p WHERE l.job_data = '' AND p.id = l.id)
  ))), 0)::bigint AS size FROM (
    SELECT id, job_data FROM {live}
    WHERE (tenant, id) > (w.tenant, 0) AND (tenant, id) <= (w.tenant, 9223372036854775807) AND tenant <> ''
    ORDER BY tenant, id
  ) AS l
) AS used WHERE used.jobs > 0
