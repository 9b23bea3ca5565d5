-- What is kept for jobs that take answers (index _open): what belongs to each, and what came at most so long before it was
-- added and after the end of the last job that had its key. Some for each, in the order it came;
-- locked, so that no prune deletes what a job is about to be given.
SELECT wanted.job AS wanted_by, a.* FROM json_to_recordset(%(rows)s) AS wanted (
  job BIGINT, tenant TEXT, job_type TEXT, job_key TEXT, create_time BIGINT, applied BIGINT
) CROSS JOIN LATERAL (
  SELECT a.id, a.job, a.attempt,
    a.answer_id = '' AND coalesce(a.hash = (
      SELECT had.hash FROM hipq_answers had WHERE had.id = wanted.applied
    ), false) AS copy
  FROM hipq_answers a
  WHERE a.job_key = wanted.job_key AND a.job_type = wanted.job_type AND a.queue = {number} AND a.tenant = wanted.tenant
    AND a.state = 'buffered' AND a.keep_until > %(now)s AND a.id > %(after)s
    AND (a.job = wanted.job OR a.job = 0 AND a.early_until >= wanted.create_time AND a.arrived > coalesce((
      SELECT f.update_time FROM {final} f
      WHERE f.job_key = wanted.job_key AND f.job_type = wanted.job_type AND f.tenant = wanted.tenant
      ORDER BY f.job_key DESC, f.job_type DESC, f.update_time DESC LIMIT 1
    ), 0))
  ORDER BY a.job_key, a.job_type, a.queue, a.tenant, a.id LIMIT %(looked_at)s
  FOR UPDATE
) AS a ORDER BY a.id
