-- Put answers into the inbox, in the order given.
INSERT INTO hipq_answers (
  queue, tenant, job_type, job_key, answer_id, twin, hash, data, error, attempt, state, job, arrived, early_until,
  remember_until, keep_until, copies, note
)
SELECT * FROM json_to_recordset(:rows) AS new (
  queue INTEGER, tenant TEXT, job_type TEXT, job_key TEXT, answer_id TEXT, twin BIGINT, hash TEXT, data TEXT,
  error INTEGER, attempt BIGINT, state TEXT, job BIGINT, arrived BIGINT, early_until BIGINT, remember_until BIGINT, keep_until BIGINT,
  copies BIGINT, note TEXT
)
RETURNING id
