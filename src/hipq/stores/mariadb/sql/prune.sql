-- Final rows from one place on, oldest first (index _time, which ends with the id).
SELECT update_time, id, job_type, code, tenant FROM {final} FORCE INDEX ({final}_time)
WHERE (update_time > :after_time OR update_time = :after_time AND id > :after_id)
  AND (update_time < :before_time OR update_time = :before_time AND id < :before_id)
ORDER BY update_time, id LIMIT :limit
