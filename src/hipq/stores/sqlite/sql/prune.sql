-- Final rows from one place on, oldest first (index _time, which ends with the id): the last place of so many, and
-- the ids of those to be deleted, with their payloads, in the same transaction.
WITH old AS MATERIALIZED (
  SELECT id, update_time, job_type, code, tenant FROM {final}
  WHERE update_time >= :after_time AND (update_time, id) > (:after_time, :after_id)
    AND update_time <= :before_time AND (update_time, id) < (:before_time, :before_id)
  ORDER BY update_time, id LIMIT :limit
)
SELECT json_group_array(id) FILTER (
    WHERE (:job_type = '' OR job_type = :job_type) AND (:code = '' OR code = :code) AND (:tenant = '' OR tenant = :tenant)
  ),
  max(update_time), (SELECT id FROM old ORDER BY update_time DESC, id DESC LIMIT 1)
FROM old
