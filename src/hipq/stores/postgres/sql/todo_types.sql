-- The types of jobs that wait for user code other than their handler, by skipping from one to the next (index _todo).
WITH RECURSIVE found AS (
  SELECT min(job_type) AS job_type, 1 AS depth FROM {live}
  WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0
  UNION ALL
  SELECT (
    SELECT min(job_type) FROM {live}
    WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0 AND job_type > found.job_type
  ), depth + 1 FROM found WHERE found.job_type IS NOT NULL AND depth < %(most)s
)
SELECT job_type FROM found WHERE job_type IS NOT NULL
