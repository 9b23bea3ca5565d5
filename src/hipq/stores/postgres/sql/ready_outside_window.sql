-- Ready jobs of one claim group, of whatever weight (index _ready).
SELECT {columns} FROM {live} l
WHERE phase = 'ready' AND job_type = %(type)s AND lane = %(lane)s AND time_windows = %(windows)s
ORDER BY throttle_factor, rank, id LIMIT %(limit)s
