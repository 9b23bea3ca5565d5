-- Take an answer out of the inbox, unless it has been used (primary key).
DELETE FROM hipq_answers WHERE id = %(id)s AND state = ANY (%(states)s::text[]) RETURNING id
