-- Which jobs have answers that are kept for them (index _early), or that came under one of their keys (index _open).
SELECT DISTINCT wanted.position FROM {key_rows} AS wanted
WHERE EXISTS (
  SELECT 1 FROM hipq_answers b FORCE INDEX (hipq_answers_early)
  WHERE b.early_job = wanted.position AND b.queue = {number} AND b.keep_until > :now AND b.id > :after
) OR EXISTS (
  SELECT 1 FROM hipq_answers b FORCE INDEX (hipq_answers_open)
  WHERE b.open_key = wanted.job_key AND b.job_type = wanted.job_type AND b.queue = {number} AND b.tenant = wanted.tenant
    AND b.keep_until > :now AND b.id > :after AND b.job = 0
)
