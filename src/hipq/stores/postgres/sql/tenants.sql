-- Tenants that have ready jobs, the last first, by skipping from one to the next in the index _turns: one probe for each.
-- Backwards, since jobs are claimed from the front: what they leave behind there while an old snapshot is open is not
-- read. Ordered by all of the index: so no other plan fits.
WITH RECURSIVE place AS (
  (
    SELECT tenant, 1 AS depth FROM {live}
    WHERE phase = {READY} AND tenant <> '' AND tenant < :before
    ORDER BY tenant DESC, lane DESC, rank DESC LIMIT 1
  )
  UNION ALL
  SELECT head.tenant, p.depth + 1 FROM place p CROSS JOIN LATERAL (
    SELECT tenant FROM {live}
    WHERE phase = {READY} AND tenant <> '' AND tenant < p.tenant
    ORDER BY tenant DESC, lane DESC, rank DESC LIMIT 1
  ) AS head WHERE p.depth < :most
)
SELECT tenant FROM place
