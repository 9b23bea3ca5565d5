-- The heaviest of the jobs that count against limits, of the first :looked in the index _owner: those may be 100,000.
SELECT id, lane, held, owner FROM (
  SELECT id, lane, held, owner FROM {live} FORCE INDEX ({live}_owner)
  WHERE owner > 0 AND held <> 0 OR owner = 0 AND held > 0 LIMIT :looked
) few ORDER BY held DESC, id LIMIT :limit
