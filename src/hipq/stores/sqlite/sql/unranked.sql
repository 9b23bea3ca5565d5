-- Due scheduled jobs that were added in plain SQL and have no rank yet, earliest first. Index _stage.
SELECT {columns} FROM {live} WHERE phase = 'scheduled' AND scheduled_run_time <= :now AND rank = ''
ORDER BY scheduled_run_time LIMIT :limit
