-- Schedules are changed: a number for that (primary key). Whoever changes others waits until this transaction ends, so
-- numbers are committed in their order, and an engine that has looked misses none.
UPDATE hipq_queues SET crons = crons + 1 WHERE number = {number};
SELECT crons FROM hipq_queues WHERE number = {number}
