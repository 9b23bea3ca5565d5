-- Final rows from one place on, oldest first (index _time): those to be deleted are locked, and go with their payloads.
-- Rows another prune has locked are left to it. How many went, and the last place of all that were looked at.
WITH old AS MATERIALIZED (
  SELECT id, update_time, job_type, code, tenant FROM {final}
  WHERE update_time >= :after_time AND (update_time, id) > (:after_time, :after_id)
    AND update_time <= :before_time AND (update_time, id) < (:before_time, :before_id)
  ORDER BY update_time, id LIMIT :limit
), chosen AS MATERIALIZED (
  SELECT id FROM {final} WHERE id = ANY (ARRAY(
    SELECT id FROM old WHERE (:job_type = '' OR job_type = :job_type) AND (:code = '' OR code = :code)
      AND (:tenant = '' OR tenant = :tenant)
  )) FOR UPDATE SKIP LOCKED
), payloads AS (
  DELETE FROM hipq_payloads WHERE id = ANY (ARRAY(SELECT id FROM chosen))
), gone AS (
  DELETE FROM {final} WHERE id = ANY (ARRAY(SELECT id FROM chosen)) RETURNING id
)
SELECT (SELECT count(*) FROM gone), update_time, id FROM old ORDER BY update_time DESC, id DESC LIMIT 1
