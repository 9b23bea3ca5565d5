-- Put answers into the inbox, and find their numbers, in order. By how much numbers grow changes whenever a node joins a cluster
-- or leaves it.
INSERT INTO hipq_answers (
  queue, tenant, job_type, job_key, answer_id, twin, hash, data, error, attempt, state, job, arrived, early_until,
  remember_until, keep_until, copies, note
) VALUES {answers}{returning id}
