-- The queue's ticket under a new number, unless an engine that is alive has one that is not over (primary key).
INSERT INTO hipq_tickets (queue, number, engine_id, until, boot)
VALUES ({number}, 1, :engine_id, :steady + CAST(round(:seconds * 1000000) AS INTEGER), :boot)
ON CONFLICT (queue) DO UPDATE SET number = number + 1, engine_id = excluded.engine_id, until = excluded.until,
  boot = excluded.boot
WHERE engine_id IN (0, excluded.engine_id) OR until <= :steady OR boot <> :boot OR NOT EXISTS (
  SELECT 1 FROM hipq_engines e WHERE e.engine_id = hipq_tickets.engine_id AND e.lease_until > :steady AND e.boot = :boot
)
RETURNING number
