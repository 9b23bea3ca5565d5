-- Add to the counters of a minute, in the transaction that saves what is counted (primary key).
INSERT INTO hipq_activity (queue, starts, job_type, {counters}) {rows}
ON CONFLICT (queue, grain, starts, job_type) DO UPDATE SET {added}
