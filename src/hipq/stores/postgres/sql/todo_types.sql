-- The types of jobs that wait for user code other than their handler, by skipping from one to the next (index _todo).
WITH RECURSIVE found AS (
  SELECT min(job_type) AS job_type, 1 AS depth FROM {live}
  WHERE {TODO}
  UNION ALL
  SELECT (
    SELECT min(job_type) FROM {live}
    WHERE {TODO} AND job_type > found.job_type
  ), depth + 1 FROM found WHERE found.job_type IS NOT NULL AND depth < :most
)
SELECT job_type FROM found WHERE job_type IS NOT NULL
