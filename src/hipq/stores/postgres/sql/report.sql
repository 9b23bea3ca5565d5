-- How far jobs have come; of those that have moved on meanwhile nothing is written (primary keys). In the order of their
-- ids, so that nobody deadlocks. Of two attempts at a job the later one counts, whichever is written last.
INSERT INTO hipq_progress AS p (id, attempt, fraction, message, at)
SELECT said.id, said.attempt, said.fraction, said.message, :now
FROM json_to_recordset(:rows) AS said (id BIGINT, token BIGINT, attempt BIGINT, fraction DOUBLE PRECISION, message TEXT)
JOIN {live} l ON l.id = ANY (ARRAY[said.id]) AND l.token = said.token
ORDER BY said.id
ON CONFLICT (id) DO UPDATE SET
  attempt = excluded.attempt, fraction = excluded.fraction, message = excluded.message, at = excluded.at
WHERE p.attempt <= excluded.attempt
RETURNING id
