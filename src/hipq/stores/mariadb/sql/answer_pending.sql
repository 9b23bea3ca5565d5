-- What is kept for a job that takes answers: what belongs to it (index _early), and what came under its keys at most so long
-- before it was added and after the end of the last job that had that key (index _open). Some, in the order it came.
SELECT :job, a.id, a.job, a.attempt, a.answer_id = '' AND EXISTS (
  SELECT 1 FROM hipq_answers had WHERE had.id = :applied AND had.hash = a.hash AND had.job_key = a.job_key
) FROM hipq_answers a FORCE INDEX (PRIMARY) WHERE a.id IN (
  SELECT id FROM (
    (
      SELECT b.id FROM hipq_answers b FORCE INDEX (hipq_answers_early)
      WHERE b.early_job = :job AND b.queue = {number} AND b.keep_until > :now AND b.id > :after
      ORDER BY b.id LIMIT :looked_at
    ) UNION ALL (
      SELECT b.id FROM hipq_answers b FORCE INDEX (hipq_answers_open)
      WHERE b.open_key {in keys} AND b.job_type = :job_type AND b.queue = {number} AND b.tenant = :tenant
        AND b.keep_until > :now AND b.id > :after AND b.job = 0 AND b.early_until >= :create_time
        AND b.arrived > greatest(coalesce((
          SELECT f.update_time FROM {final} f FORCE INDEX ({final}_key)
          WHERE f.job_key = b.open_key AND f.job_type = :job_type AND f.tenant = :tenant ORDER BY f.update_time DESC LIMIT 1
        ), 0), coalesce((
          SELECT f.update_time FROM {final} f FORCE INDEX ({final}_waited)
          WHERE f.waited = b.open_key AND f.job_type = :job_type AND f.tenant = :tenant ORDER BY f.update_time DESC LIMIT 1
        ), 0))
      ORDER BY b.id LIMIT :looked_at
    )
  ) AS some
) ORDER BY a.id
