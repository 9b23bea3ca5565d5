-- The claim groups of one type, up to two (index _ready); such SELECTs are joined into one statement. There are others than
-- the plain one, of no lane, no windows and factor 1, if there are two or the only one is another.
{skipping}
(
  SELECT lane = '' AND windowed = '[]' AND throttle_factor = 1000 FROM {live} FORCE INDEX ({live}_ready)
  WHERE phase = {READY} AND job_type = :type GROUP BY phase, job_type, lane, windowed, throttle_factor LIMIT 2
)
