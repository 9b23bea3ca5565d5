-- What counts against limits, by lane (index _owner).
SELECT lane, sum(held)::bigint FROM {live} WHERE held <> 0 GROUP BY lane
