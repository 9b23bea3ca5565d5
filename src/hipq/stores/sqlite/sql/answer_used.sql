-- Answers that jobs have looked at (primary key): from now on only their ids need be known, as long as their queue says.
WITH used (id, state) AS (SELECT json_extract(value, '$.id'), json_extract(value, '$.state') FROM json_each(:rows))
UPDATE hipq_answers SET state = used.state, remember_until = max(remember_until, :now + remember_until - arrived),
  keep_until = max(remember_until, :now + remember_until - arrived)
FROM used WHERE hipq_answers.id = used.id
