-- The types of jobs that can be claimed, by skipping from one to the next (indexes _ready, _todo): where an engine has code for
-- very many types, this is cheaper than to look for each of them.
WITH RECURSIVE ready (job_type) AS (
  SELECT min(job_type) FROM {live} INDEXED BY {live}_ready WHERE phase = {READY}
  UNION ALL
  SELECT (SELECT min(job_type) FROM {live} INDEXED BY {live}_ready WHERE phase = {READY} AND job_type > ready.job_type)
  FROM ready WHERE ready.job_type IS NOT NULL
), todo (job_type) AS (
  SELECT min(job_type) FROM {live} INDEXED BY {live}_todo WHERE {TODO}
  UNION ALL
  SELECT (SELECT min(job_type) FROM {live} INDEXED BY {live}_todo WHERE {TODO} AND job_type > todo.job_type)
  FROM todo WHERE todo.job_type IS NOT NULL
)
SELECT json_group_array(json_array(job_type)) AS gathered FROM (
  SELECT job_type FROM ready WHERE job_type IS NOT NULL
  UNION ALL SELECT job_type FROM todo WHERE job_type IS NOT NULL
)
