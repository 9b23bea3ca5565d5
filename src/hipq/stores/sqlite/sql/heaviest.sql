-- The heaviest of the jobs that count against limits, of the first :looked in the index _owner: those may be 100,000.
SELECT id, lane, held, owner FROM (
  SELECT id, lane, held, owner FROM {live} INDEXED BY {live}_owner WHERE held <> 0 LIMIT :looked
) AS few ORDER BY held DESC, id LIMIT :limit
