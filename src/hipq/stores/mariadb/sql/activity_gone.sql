-- Delete the counters of connections in one period (primary key), which are locked.
DELETE FROM hipq_activity
WHERE queue = :queue AND grain = :grain AND starts = :starts AND job_type = :job_type AND writer {in writers}
