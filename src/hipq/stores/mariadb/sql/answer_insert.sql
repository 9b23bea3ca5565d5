-- Put answers into the inbox. Their numbers follow each other: how many rows there are is known when the first is taken.
INSERT INTO hipq_answers (
  queue, tenant, job_type, job_key, answer_id, twin, hash, data, error, attempt, state, job, arrived, early_until,
  remember_until, keep_until, copies, note
) VALUES {answers}
