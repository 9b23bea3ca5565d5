-- The queue, if a job of it, live or final, has a key in this range (indexes _key). One such SELECT a queue.
SELECT {number} AS queue WHERE EXISTS (SELECT 1 FROM {live} WHERE job_key >= :first AND job_key <= :last)
OR EXISTS (SELECT 1 FROM {final} WHERE job_key >= :first AND job_key <= :last)
