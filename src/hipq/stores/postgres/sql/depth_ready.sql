-- How many jobs of a type are ready, up to :most, and when the first of those was due (index _ready). Joined by LATERAL, and
-- compared with what sorts before every claim group: else a plan that was made while the table was small sorts all of it.
SELECT {READY}, count(*), coalesce(min(due), 0) FROM unnest(ARRAY[:type]::text[]) AS type (name) CROSS JOIN LATERAL (
  SELECT scheduled_run_time AS due FROM {live}
  WHERE phase = {READY} AND job_type = type.name AND (lane, time_windows, throttle_factor) > ('', '', 0)
  ORDER BY lane, time_windows, throttle_factor, rank, id LIMIT :most
) AS ready
