-- What counts against limits, by lane, and the least that a job of it has (index _owner has it all).
SELECT json_group_array(json_array(lane, units, least)) AS gathered FROM (
  SELECT lane, sum(held) AS units, min(held) AS least FROM {live} INDEXED BY {live}_owner WHERE held <> 0 GROUP BY lane
)
