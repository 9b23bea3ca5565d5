-- The types of jobs that wait for user code other than their handler, by skipping from one to the next (index _todo).
{skipping}
SELECT DISTINCT job_type FROM (
  SELECT todo, job_type FROM {live} FORCE INDEX ({live}_todo) WHERE todo >= '' GROUP BY todo, job_type
) AS found ORDER BY job_type LIMIT :most
