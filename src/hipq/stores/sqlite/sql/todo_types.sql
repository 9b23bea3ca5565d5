-- The types of jobs that wait for user code other than their handler, by skipping from one to the next (index _todo).
WITH RECURSIVE found (job_type, depth) AS (
  SELECT min(job_type), 1 FROM {live} INDEXED BY {live}_todo
  WHERE {TODO}
  UNION ALL
  SELECT (
    SELECT min(job_type) FROM {live} INDEXED BY {live}_todo
    WHERE {TODO} AND job_type > found.job_type
  ), depth + 1 FROM found WHERE found.job_type IS NOT NULL AND depth < :most
)
SELECT json_group_array(json_array(job_type)) AS gathered FROM found WHERE job_type IS NOT NULL
