-- Answers that jobs have looked at (primary key): from now on only their ids need be known, as long as their queue says.
WITH used (id, state, now) AS ({rows})
UPDATE hipq_answers SET state = used.state, remember_until = max(remember_until, used.now + remember_until - arrived),
  keep_until = max(remember_until, used.now + remember_until - arrived)
FROM used WHERE hipq_answers.id = used.id
