-- Where answers go from here (primary key): their state, their job, why.
UPDATE hipq_answers a SET state = placed.state, note = placed.note, job = CASE placed.job WHEN 0 THEN a.job ELSE placed.job END
FROM json_to_recordset(:rows) AS placed (id BIGINT, state TEXT, job BIGINT, note TEXT)
WHERE a.id = ANY (ARRAY[placed.id])
