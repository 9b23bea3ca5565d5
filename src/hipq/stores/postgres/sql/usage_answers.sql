-- The answers of each of these tenants that no job has taken: only their rows are read, by ranges of the index
-- hipq_answers_tenant (see `listing` for why they are spelled so).
SELECT w.tenant, used.answers, used.size FROM unnest(:tenants::text[]) AS w (tenant) CROSS JOIN LATERAL (
  SELECT count(*) AS answers, coalesce(sum(octet_length(a.data)), 0)::bigint AS size FROM (
    SELECT data, queue, state FROM hipq_answers
    WHERE (tenant, id) > (w.tenant, 0) AND (tenant, id) <= (w.tenant, 9223372036854775807) AND tenant <> ''
    ORDER BY tenant, id
  ) AS a WHERE a.queue = {number} AND a.state IN ({NEW}, {BUFFERED}, {DUPLICATE}, {CONFLICT}, {LATE}, {UNREADABLE})
) AS used WHERE used.answers > 0
