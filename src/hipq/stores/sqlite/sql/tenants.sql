-- Tenants that have ready jobs, the last first, by skipping from one to the next in the index _turns: one probe for each.
WITH RECURSIVE place (tenant, depth) AS (
  SELECT (
    SELECT tenant FROM {live} INDEXED BY {live}_turns
    WHERE phase = {READY} AND tenant <> '' AND tenant < :before ORDER BY tenant DESC LIMIT 1
  ), 1
  UNION ALL
  SELECT (
    SELECT tenant FROM {live} INDEXED BY {live}_turns
    WHERE phase = {READY} AND tenant <> '' AND tenant < place.tenant ORDER BY tenant DESC LIMIT 1
  ), depth + 1 FROM place WHERE place.tenant IS NOT NULL AND depth < :most
)
SELECT json_group_array(json_array(tenant)) AS gathered FROM place WHERE tenant IS NOT NULL
