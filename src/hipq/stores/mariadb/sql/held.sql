-- What counts against limits, by lane, and the least that a job of it has (index _owner has it all).
SELECT lane, CAST(sum(held) AS SIGNED), min(held) FROM {live} FORCE INDEX ({live}_owner)
WHERE owner > 0 AND held <> 0 OR owner = 0 AND held > 0 GROUP BY lane
