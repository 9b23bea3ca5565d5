-- The types of jobs that can be claimed, by skipping from one to the next (indexes _ready, _todo): where an engine has code for
-- very many types, this is cheaper than to look for each of them.
WITH RECURSIVE ready AS (
  SELECT min(job_type) AS job_type FROM {live} WHERE phase = {READY}
  UNION ALL
  SELECT (SELECT min(job_type) FROM {live} WHERE phase = {READY} AND job_type > ready.job_type)
  FROM ready WHERE ready.job_type IS NOT NULL
), todo AS (
  SELECT min(job_type) AS job_type FROM {live} WHERE {TODO}
  UNION ALL
  SELECT (SELECT min(job_type) FROM {live} WHERE {TODO} AND job_type > todo.job_type)
  FROM todo WHERE todo.job_type IS NOT NULL
)
SELECT job_type FROM ready WHERE job_type IS NOT NULL
UNION ALL SELECT job_type FROM todo WHERE job_type IS NOT NULL
