-- The queues of which a job's progress is stored: a look at all that is stored, which is little.
SELECT DISTINCT id & 65535 FROM hipq_progress
