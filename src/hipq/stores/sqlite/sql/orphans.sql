-- Rows owned by an engine without a live lease (index _owner): an anti-join, so a lease that vanished counts as expired.
-- One such SELECT a queue. Not in order: with many queues, sorting each would cost more than all the rest.
SELECT {columns} FROM {live} l INDEXED BY {live}_owner
WHERE owner <> 0 AND owner > 0 AND NOT EXISTS (
  SELECT 1 FROM hipq_engines e WHERE e.engine_id = l.owner AND e.lease_until > :steady AND e.boot = :boot
)
LIMIT :limit
