-- The jobs that count against limits (index _owner), the heaviest first.
SELECT id, lane, held, owner FROM {live} INDEXED BY {live}_owner WHERE held <> 0 ORDER BY held DESC, id LIMIT :limit
