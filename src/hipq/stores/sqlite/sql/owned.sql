-- Rows one engine owns (index _owner); one such SELECT a queue.
SELECT {columns} FROM {live} WHERE owner = :engine_id AND owner <> 0 LIMIT :limit
