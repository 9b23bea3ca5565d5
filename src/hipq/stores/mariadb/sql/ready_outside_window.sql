-- Ready jobs of one type, lane and set of windows, of whatever weight (index _ready).
SELECT {columns} FROM {live} l FORCE INDEX ({live}_ready)
WHERE phase = {READY} AND job_type = :type AND lane = :lane AND windowed = {windowed}
ORDER BY throttle_factor, rank, id LIMIT :limit
