-- Where answers go from here (primary key): their state, their job, why.
WITH placed (id, state, job, note) AS (
  SELECT json_extract(value, '$.id'), json_extract(value, '$.state'), json_extract(value, '$.job'), json_extract(value, '$.note')
  FROM json_each(:rows)
)
UPDATE hipq_answers SET state = placed.state, note = placed.note,
  job = CASE placed.job WHEN 0 THEN hipq_answers.job ELSE placed.job END
FROM placed WHERE hipq_answers.id = placed.id
