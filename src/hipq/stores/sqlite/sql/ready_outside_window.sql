-- Ready jobs of one type, lane and set of windows, of whatever weight (index _ready).
SELECT {columns} FROM {live}
WHERE phase = 'ready' AND job_type = ? AND lane = ? AND time_windows = ? ORDER BY throttle_factor, rank, id LIMIT ?
