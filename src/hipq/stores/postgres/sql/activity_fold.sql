-- Add the counters of some periods to those of longer ones, or those of connections to those of none, and delete them
-- (primary key). What somebody is adding to is passed over, until the next time: so nobody waits here with rows locked that
-- others wait for. A row that was added to since this statement began stays, too, since ctid finds the older version.
WITH gone AS (
  DELETE FROM hipq_activity WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM hipq_activity
    WHERE queue {in queues} AND grain = :grain AND starts >= :since AND starts < :until AND {which}
    LIMIT 10000 FOR UPDATE SKIP LOCKED
  )) RETURNING *
), folded AS (
  INSERT INTO hipq_activity (queue, grain, starts, job_type, writer, {counters})
  SELECT queue, :into, starts / :period * :period, job_type, 0, {sums} FROM gone GROUP BY 1, 3, 4
  ON CONFLICT (queue, grain, starts, job_type, writer) DO UPDATE SET {added}
)
SELECT count(*) FROM gone
