-- How many jobs of a tenant are in which state, of so many that come behind an id. One that was only given back counts
-- as initial: nothing went wrong with it (index _tenant).
SELECT job_type, state, phase, count(*), max(id) FROM (
  SELECT id, job_type, phase, CASE WHEN state = {RETRY} AND code = {NONE} THEN {INITIAL} ELSE state END AS state
  FROM {live} FORCE INDEX ({live}_tenant)
  WHERE tenant = :tenant AND tenant <> '' AND id > :after ORDER BY id LIMIT :rows
) AS found GROUP BY job_type, state, phase
