-- Due scheduled jobs that were added in plain SQL and have no rank yet, earliest first (index _stage).
SELECT {columns} FROM {live} l WHERE phase = {SCHEDULED} AND scheduled_run_time <= :now AND rank = ''
ORDER BY scheduled_run_time LIMIT :limit
