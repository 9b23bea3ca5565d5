-- One answer (primary key).
SELECT {kept} FROM hipq_answers WHERE id = :id
