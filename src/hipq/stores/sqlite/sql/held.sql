-- What counts against limits, by lane (index _owner has it all).
SELECT json_group_array(json_array(lane, held)) FROM (
  SELECT lane, sum(held) AS held FROM {live} INDEXED BY {live}_owner WHERE held <> 0 GROUP BY lane
)
