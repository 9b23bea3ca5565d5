-- What is kept for jobs that take answers: what belongs to each (index _early), and what came under its keys at most so long
-- before it was added and after the end of the last job that had that key (index _open). Some for each, in the order it
-- came; locked, so that no prune deletes what a job is about to be given, and compared again once it is.
SELECT wanted.job AS wanted_by, a.* FROM json_to_recordset(:rows) AS wanted (
  job BIGINT, tenant TEXT, job_type TEXT, keys TEXT[], create_time BIGINT, applied BIGINT
) CROSS JOIN LATERAL (
  SELECT a.id, a.job, a.attempt,
    a.answer_id = '' AND coalesce((a.hash, a.job_key) = (
      SELECT had.hash, had.job_key FROM hipq_answers had WHERE had.id = wanted.applied
    ), false) AS copy
  FROM hipq_answers a
  WHERE a.id = ANY (ARRAY(
    SELECT bound.id FROM (
      SELECT b.id FROM hipq_answers b
      WHERE b.queue = {number} AND b.job = wanted.job AND b.job <> 0 AND b.state = {BUFFERED}
        AND b.keep_until > :now AND b.id > :after
      ORDER BY b.id + 0 LIMIT :looked_at
    ) AS bound
    UNION ALL
    SELECT early.id FROM unnest(wanted.keys) AS key CROSS JOIN LATERAL (
      SELECT b.id FROM hipq_answers b
      WHERE b.job_key = key AND b.job_type = wanted.job_type AND b.queue = {number} AND b.tenant = wanted.tenant
        AND b.state = {BUFFERED} AND b.keep_until > :now AND b.id > :after
        AND b.job = 0 AND b.early_until >= wanted.create_time AND b.arrived > greatest((
          SELECT f.update_time FROM {final} f
          WHERE f.job_key = key AND f.job_type = wanted.job_type AND f.tenant = wanted.tenant
          ORDER BY f.job_key DESC, f.job_type DESC, f.update_time DESC LIMIT 1
        ), (
          SELECT f.update_time FROM {final} f
          WHERE f.wait_key = key AND f.job_type = wanted.job_type AND f.tenant = wanted.tenant AND f.wait_key <> ''
          ORDER BY f.wait_key DESC, f.job_type DESC, f.tenant DESC, f.update_time DESC LIMIT 1
        ), 0)
      ORDER BY b.job_key, b.job_type, b.queue, b.tenant, b.id LIMIT :looked_at
    ) AS early
  )) AND a.state || '' = {BUFFERED}
  FOR UPDATE
) AS a ORDER BY a.id
