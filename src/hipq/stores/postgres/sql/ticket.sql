-- What is noted about a queue's ticket, who has it, and whether that engine's time is over (primary key).
SELECT note, engine_id, engine_id <> 0 AND until <= clock_timestamp() FROM hipq_tickets WHERE queue = {number}
