-- What counts against limits, by lane, and the least that a job of it has (index _owner).
SELECT lane, sum(held)::bigint, min(held) FROM {live} WHERE held <> 0 GROUP BY lane
