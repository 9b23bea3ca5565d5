-- Whether ready jobs of these types are in any claim group but the plain one: no lane, no windows, factor 1 (index _ready).
-- Only lighter jobs sort before that claim group. What sorts behind every rank comes last, or SQLite would read through all of
-- the plain claim group: it begins where a list of values is, not after it.
SELECT EXISTS (
  SELECT 1 FROM json_each(:types) AS type WHERE EXISTS (
    SELECT 1 FROM {live} WHERE phase = {READY} AND job_type = type.value
      AND (lane, time_windows, throttle_factor, rank) > ('', '[]', 1000, '~')
  ) OR EXISTS (
    SELECT 1 FROM {live} WHERE phase = {READY} AND job_type = type.value
      AND lane = '' AND time_windows = '[]' AND throttle_factor < 1000
  )
)
