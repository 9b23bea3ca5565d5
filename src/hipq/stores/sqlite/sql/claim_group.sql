-- The next places of some claim groups, each after a given one (index _ready), in one step for all of them.
SELECT json_group_array(json(places)) AS gathered FROM (
  SELECT (
    SELECT json_group_array(json_array(rank, id)) FROM (
      SELECT rank, id FROM {live} INDEXED BY {live}_ready
      WHERE phase = {READY} AND job_type = json_extract(line.value, '$[0]') AND lane = json_extract(line.value, '$[1]')
        AND time_windows = json_extract(line.value, '$[2]') AND throttle_factor = json_extract(line.value, '$[3]')
        AND (rank, id) > (json_extract(line.value, '$[4]'), json_extract(line.value, '$[5]')) AND scheduled_run_time <= :now
      ORDER BY rank, id LIMIT :count
    )
  ) AS places FROM json_each(:lines) AS line ORDER BY line.key
)
