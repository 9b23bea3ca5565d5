-- Add the counters of some periods to those of a longer one; the next statement of the transaction deletes them (primary
-- key).
INSERT INTO hipq_activity (queue, grain, starts, job_type, {counters})
SELECT queue, :into, :since, job_type, {sums} FROM hipq_activity
WHERE queue = :queue AND grain = :grain AND starts >= :since AND starts < :until GROUP BY queue, job_type
ON CONFLICT (queue, grain, starts, job_type) DO UPDATE SET {added}
