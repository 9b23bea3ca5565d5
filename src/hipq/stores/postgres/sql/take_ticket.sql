-- The queue's ticket under a new number, unless an engine that is alive has one that is not over (primary key).
INSERT INTO hipq_tickets AS t (queue, number, engine_id, until)
VALUES ({number}, 1, :engine_id, clock_timestamp() + make_interval(secs => :seconds))
ON CONFLICT (queue) DO UPDATE SET number = t.number + 1, engine_id = excluded.engine_id, until = excluded.until
WHERE t.engine_id IN (0, excluded.engine_id) OR t.until <= clock_timestamp() OR NOT EXISTS (
  SELECT FROM hipq_engines e WHERE e.engine_id = t.engine_id AND e.lease_until > clock_timestamp()
)
RETURNING number
