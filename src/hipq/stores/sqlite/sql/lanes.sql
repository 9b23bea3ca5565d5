-- Lanes of tenants in which jobs are ready, from a place in each tenant backwards, by skipping from one to the next in the
-- index _turns: as many probes as lanes, and a count of each that ends where it was told to.
WITH RECURSIVE place (tenant, lane, depth) AS (
  SELECT key, value, 0 FROM json_each(:places)
  UNION ALL
  SELECT tenant, (
    SELECT l.lane FROM {live} l INDEXED BY {live}_turns
    WHERE l.phase = {READY} AND l.tenant <> '' AND l.tenant = p.tenant AND l.lane < p.lane ORDER BY l.lane DESC LIMIT 1
  ), depth + 1 FROM place p WHERE p.lane IS NOT NULL AND depth < :each
)
SELECT json_group_array(json_array((
  SELECT l.job_type FROM {live} l INDEXED BY {live}_turns
  WHERE l.phase = {READY} AND l.tenant <> '' AND l.tenant = p.tenant AND l.lane = p.lane LIMIT 1
), lane, (
  SELECT count(*) FROM (
    SELECT 1 FROM {live} l INDEXED BY {live}_turns
    WHERE l.phase = {READY} AND l.tenant <> '' AND l.tenant = p.tenant AND l.lane = p.lane LIMIT :count
  )
))) AS gathered FROM place p WHERE depth > 0 AND lane IS NOT NULL
