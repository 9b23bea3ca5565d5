-- Take an answer out of the inbox if it is in one of these states (primary key).
DELETE FROM hipq_answers WHERE id = :id AND state {in text states}
