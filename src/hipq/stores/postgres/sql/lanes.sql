-- Lanes of tenants in which jobs are ready, from a place in each tenant backwards, by skipping from one to the next in the
-- index _turns: as many probes as lanes, and a count of each that ends where it was told to. See tenants.sql.
WITH RECURSIVE place AS (
  SELECT w.tenant COLLATE "C" AS tenant, w.lane COLLATE "C" AS lane, '' COLLATE "C" AS job_type, 0 AS depth
  FROM json_each_text(:places::json) AS w (tenant, lane)
  UNION ALL
  SELECT p.tenant, head.lane, head.job_type, p.depth + 1 FROM place p CROSS JOIN LATERAL (
    SELECT lane, job_type FROM {live}
    WHERE phase = {READY} AND tenant <> '' AND (tenant, lane) < (p.tenant, p.lane) AND (tenant, lane) >= (p.tenant, '')
    ORDER BY tenant DESC, lane DESC, rank DESC LIMIT 1
  ) AS head WHERE p.depth < :each
)
SELECT job_type, lane, (
  SELECT count(*) FROM (
    SELECT FROM {live} l
    WHERE l.phase = {READY} AND l.tenant <> ''
      AND (l.tenant, l.lane) <= (p.tenant, p.lane) AND (l.tenant, l.lane) >= (p.tenant, p.lane)
    ORDER BY l.tenant DESC, l.lane DESC, l.rank DESC LIMIT :count
  ) AS counted
) FROM place p WHERE depth > 0
