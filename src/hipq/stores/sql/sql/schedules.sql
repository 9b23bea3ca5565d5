-- The cron schedules of a queue that were changed since (index hipq_crons_version); all of them from version 0 on.
SELECT name, job_type, definition, since, last, next, version FROM hipq_crons
WHERE queue = {number} AND version > :after ORDER BY name
