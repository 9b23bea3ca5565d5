-- How far jobs have come; of those that have moved on meanwhile nothing is written (primary keys). Of two
-- attempts at a job the later one counts, whichever is written last.
WITH said (id, token, attempt, fraction, message) AS (
  SELECT json_extract(value, '$.id'), json_extract(value, '$.token'), json_extract(value, '$.attempt'),
    json_extract(value, '$.fraction'), json_extract(value, '$.message')
  FROM json_each(:rows)
)
INSERT INTO hipq_progress AS p (id, attempt, fraction, message, at)
SELECT said.id, said.attempt, said.fraction, said.message, :now
FROM said JOIN {live} l ON l.id = said.id AND l.token = said.token WHERE true
ON CONFLICT (id) DO UPDATE SET
  attempt = excluded.attempt, fraction = excluded.fraction, message = excluded.message, at = excluded.at
WHERE p.attempt <= excluded.attempt
RETURNING id
