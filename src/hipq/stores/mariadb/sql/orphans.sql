-- Rows owned by an engine that has no lease (index _owner). Those that are over were deleted just before: so an engine that
-- renews its lease and one that ends it write the same row, and on a cluster, too, only one of them does. One that looked at
-- the time here, on a node that is behind, would take jobs from engines that live. One such SELECT a queue.
SELECT {columns} FROM {live} l FORCE INDEX ({live}_owner)
WHERE owner > 0 AND NOT EXISTS (SELECT 1 FROM hipq_engines e WHERE e.engine_id = l.owner)
LIMIT :limit
