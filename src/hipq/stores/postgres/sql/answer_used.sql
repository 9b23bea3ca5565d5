-- Answers that jobs have looked at (primary key): from now on only their ids need be known, as long as their queue says.
UPDATE hipq_answers a SET state = used.state,
  remember_until = greatest(remember_until, :now + remember_until - arrived),
  keep_until = greatest(remember_until, :now + remember_until - arrived)
FROM json_to_recordset(:rows) AS used (id BIGINT, state TEXT) WHERE a.id = ANY (ARRAY[used.id])
