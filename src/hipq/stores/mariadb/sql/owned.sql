-- The rows that one engine owns (index _owner); one such SELECT a queue.
SELECT {columns} FROM {live} l FORCE INDEX ({live}_owner) WHERE owner = :engine_id AND owner <> 0 LIMIT :limit
