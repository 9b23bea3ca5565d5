-- Answers with the same keys and ids that are still remembered (index _ids, one probe each).
SELECT wanted.position, a.* FROM json_to_recordset(:rows) AS wanted (
  position INTEGER, twin BIGINT, queue INTEGER, tenant TEXT, job_type TEXT, job_key TEXT, answer_id TEXT
) CROSS JOIN LATERAL (
  SELECT a.id, a.job, a.attempt FROM hipq_answers a
  WHERE a.twin = wanted.twin AND a.twin <> 0 AND a.job_key = wanted.job_key AND a.answer_id = wanted.answer_id
    AND a.job_type = wanted.job_type
    AND a.queue = wanted.queue AND a.tenant = wanted.tenant
    AND (a.remember_until > :now OR a.state = {MATCHED} OR a.state = {BUFFERED} AND a.keep_until > :now)
  LIMIT 1
) AS a
