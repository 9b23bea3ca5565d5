-- The heads of claim groups, type by type, by skipping from one to the next in the index _ready: as many probes as there are
-- claim groups, however many jobs each has. In each step the row after the last one's whole claim group is the head of the next.
-- Else SQLite reads through every job of a claim group: it begins at a list of values, not after it (so what sorts behind
-- every rank comes last in the list), and of columns compared with columns it finds only the first (so the plus signs).
WITH RECURSIVE claim_group (id, depth) AS (
  SELECT (
    SELECT id FROM {live} l
    WHERE phase = {READY} AND job_type = type.value
      AND (lane, time_windows, throttle_factor) > (:lane, :windows, :factor) AND scheduled_run_time <= :now
    ORDER BY lane, time_windows, throttle_factor, rank, id LIMIT 1
  ), 1 FROM json_each(:types) AS type
  UNION ALL
  SELECT (
    SELECT id FROM {live} l
    WHERE phase = {READY} AND job_type = s.job_type
      AND (lane, time_windows, throttle_factor, rank)
        > (+s.lane, +s.time_windows, +s.throttle_factor, '~')
      AND scheduled_run_time <= :now
    ORDER BY lane, time_windows, throttle_factor, rank, id LIMIT 1
  ), depth + 1 FROM claim_group JOIN {live} s USING (id) WHERE depth < :depth
)
SELECT json_group_array(json_array(job_type, lane, time_windows, throttle_factor, rank, id)) AS gathered
FROM claim_group CROSS JOIN {live} USING (id)
