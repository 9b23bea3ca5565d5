-- Delete the oldest final rows (index _time) with their payloads. Rows another prune has locked are left to it.
WITH old AS MATERIALIZED (
  SELECT id FROM {final} WHERE update_time < %(before)s ORDER BY update_time LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), payloads AS (
  DELETE FROM hipq_payloads WHERE id = ANY (ARRAY(SELECT id FROM old))
), gone AS (
  DELETE FROM {final} WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING id
)
SELECT count(*) FROM gone
