-- The heads of claim groups, type by type, by skipping from one to the next in the index _ready: as many probes as there are
-- claim groups, however many jobs each has. In each step the row after the last one's whole claim group is the head of the next.
WITH RECURSIVE claim_group AS (
  SELECT head.*, 1 AS depth FROM unnest(:types::text[]) AS type (name) CROSS JOIN LATERAL (
    SELECT job_type, lane, time_windows, throttle_factor, rank, id FROM {live}
    WHERE phase = {READY} AND job_type = type.name
      AND (lane, time_windows, throttle_factor) > (:lane, :windows, :factor) AND scheduled_run_time <= :now
    ORDER BY lane, time_windows, throttle_factor, rank, id LIMIT 1
  ) AS head
  UNION ALL
  SELECT head.*, s.depth + 1 FROM claim_group s CROSS JOIN LATERAL (
    SELECT job_type, lane, time_windows, throttle_factor, rank, id FROM {live}
    WHERE phase = {READY} AND job_type = s.job_type
      AND (lane, time_windows, throttle_factor) > (s.lane, s.time_windows, s.throttle_factor)
      AND scheduled_run_time <= :now
    ORDER BY lane, time_windows, throttle_factor, rank, id LIMIT 1
  ) AS head WHERE s.depth < :depth
)
SELECT job_type, lane, time_windows, throttle_factor, rank, id FROM claim_group
