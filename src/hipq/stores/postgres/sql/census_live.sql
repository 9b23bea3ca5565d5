-- How many jobs of a tenant are in which state, of so many that come behind an id. One that was only given back counts
-- as initial: nothing went wrong with it (a range of the index _tenant).
SELECT job_type, state, phase, count(*), max(id) FROM (
  SELECT id, job_type, phase, CASE WHEN state = {RETRY} AND code = {NONE} THEN {INITIAL} ELSE state END AS state
  FROM {live}
  WHERE (tenant, id) > (:tenant, :after) AND (tenant, id) <= (:tenant, 9223372036854775807) AND tenant <> ''
  ORDER BY tenant, id LIMIT :rows
) AS found GROUP BY job_type, state, phase
