-- The queue's ticket under a new number, unless an engine that is alive has one that is not over (primary key).
INSERT INTO hipq_tickets AS t (queue, number, sysid, until)
VALUES (%(queue)s, 1, %(sysid)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (queue) DO UPDATE SET number = t.number + 1, sysid = excluded.sysid, until = excluded.until
WHERE t.sysid IN (0, excluded.sysid) OR t.until <= clock_timestamp() OR NOT EXISTS (
  SELECT FROM hipq_engines e WHERE e.sysid = t.sysid AND e.lease_until > clock_timestamp()
)
RETURNING number
