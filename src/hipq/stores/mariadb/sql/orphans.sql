-- Rows owned by an engine without a live lease (index _owner): an anti-join, so a lease that vanished counts as expired.
-- One such SELECT a queue.
SELECT {columns} FROM {live} l FORCE INDEX ({live}_owner)
WHERE owner > 0 AND NOT EXISTS (
  SELECT 1 FROM hipq_engines e WHERE e.engine_id = l.owner AND e.lease_until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
)
LIMIT :limit
