-- Write schedules that are locked, and new ones (primary key): one statement for all of them.
INSERT INTO hipq_crons (queue, name, job_type, definition, since, last, next, version)
SELECT {number}, w.* FROM {schedule_rows} AS w
ON DUPLICATE KEY UPDATE job_type = VALUES(job_type), definition = VALUES(definition), since = VALUES(since),
  last = VALUES(last), next = VALUES(next), version = VALUES(version)
