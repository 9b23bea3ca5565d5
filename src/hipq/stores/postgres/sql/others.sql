-- The version of the queue's rules, and whether ready jobs of these types are in any claim group but the plain one: no lane,
-- no windows, factor 1 (index _ready); only lighter jobs sort before that. Joined by LATERAL and LIMIT, a probe a type:
-- else a plan that was made while the table was small reads the whole index.
SELECT version, EXISTS (
  SELECT FROM unnest(:types::text[]) AS type (name) CROSS JOIN LATERAL (
    SELECT FROM {live} WHERE phase = {READY} AND job_type = type.name
      AND (lane, time_windows, throttle_factor) > ('', '[]', 1000) LIMIT 1
  ) AS other
) OR EXISTS (
  SELECT FROM unnest(:types::text[]) AS type (name) CROSS JOIN LATERAL (
    SELECT FROM {live} WHERE phase = {READY} AND job_type = type.name
      AND lane = '' AND time_windows = '[]' AND throttle_factor < 1000 LIMIT 1
  ) AS lighter
) FROM hipq_queues WHERE number = {number}
