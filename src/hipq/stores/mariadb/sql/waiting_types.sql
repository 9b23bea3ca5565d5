-- The types of jobs that can be claimed, by skipping from one to the next (indexes _ready, _todo): where an engine has code for
-- very many types, this is cheaper than to look for each of them.
{skipping}
(SELECT job_type FROM {live} FORCE INDEX ({live}_ready) WHERE phase = {READY} GROUP BY phase, job_type)
UNION ALL (SELECT job_type FROM {live} FORCE INDEX ({live}_todo) WHERE todo >= '' GROUP BY todo, job_type)
