-- Delete the progress of jobs that have ended (primary keys). Rows that somebody has locked are left for the next time.
-- The SELECT as a value keeps to the primary key of the live table, whatever the planner believes of its size.
WITH old AS MATERIALIZED (
  SELECT p.id FROM hipq_progress p
  WHERE p.id & 65535 = {number} AND (SELECT true FROM {live} l WHERE l.id = p.id) IS NULL
  LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM hipq_progress WHERE id = ANY (ARRAY(SELECT id FROM old))
