-- What is noted about a queue's ticket, who has it, and whether that engine's time is over (primary key).
SELECT note, engine_id, engine_id <> 0 AND until <= CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) FROM hipq_tickets WHERE queue = {number}
