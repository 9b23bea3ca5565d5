-- Rows owned by an engine without a live lease (index _owner): an anti-join, so a lease that vanished counts as
-- expired. Compared with the time of the snapshot: by a later clock, a lease renewed since would look expired. Sorted
-- apart, lest the order by id make the primary key look like the better index. One such SELECT a queue.
WITH lost AS MATERIALIZED (
  SELECT id FROM {live} l
  WHERE owner > 0 AND NOT EXISTS (
    SELECT FROM hipq_engines e WHERE e.engine_id = l.owner AND e.lease_until > statement_timestamp()
  )
)
SELECT {columns} FROM {live} l WHERE id = ANY (ARRAY(SELECT id FROM lost ORDER BY id LIMIT :limit)) ORDER BY id
