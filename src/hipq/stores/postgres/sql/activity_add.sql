-- Add to the counters of a minute, in the transaction that saves what is counted (primary key). Each connection has rows
-- of its own, so nobody waits for anybody: the first to write would hold the row until its commit.
INSERT INTO hipq_activity (queue, starts, job_type, writer, {counters})
SELECT new.queue, new.starts, new.job_type, pg_backend_pid(), {given}
FROM json_to_recordset(:counts) AS new (queue INTEGER, starts BIGINT, job_type TEXT, {typed})
WHERE {sure}
ON CONFLICT (queue, grain, starts, job_type, writer) DO UPDATE SET {added}
