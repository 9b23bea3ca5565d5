-- Cron schedules by their names (primary key).
SELECT name, job_type, definition, since, last, next, version FROM hipq_crons
WHERE queue = {number} AND name {in text names} AND version > :after ORDER BY name
