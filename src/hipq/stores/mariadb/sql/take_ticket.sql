-- The queue's ticket under a new number, unless an engine that is alive has one that is not over (primary key); the row is
-- made by whoever is first. Columns are written from left to right: those that are read come last.
INSERT INTO hipq_tickets (queue, number, engine_id, until) VALUES ({number}, 0, 0, 0)
ON DUPLICATE KEY UPDATE number = hipq_tickets.number;
UPDATE hipq_tickets SET number = number + 1, engine_id = :engine_id, until = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) + CAST(round(:seconds * 1000000) AS SIGNED)
WHERE queue = {number} AND (engine_id IN (0, :engine_id) OR until <= CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) OR NOT EXISTS (
  SELECT 1 FROM hipq_engines e WHERE e.engine_id = hipq_tickets.engine_id AND e.lease_until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
));
SELECT number FROM hipq_tickets WHERE queue = {number} AND ROW_COUNT() = 1
