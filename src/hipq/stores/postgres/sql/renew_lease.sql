-- Prolong a lease that is alive (primary key). One that is over stays over: its jobs may be somebody else's by now.
UPDATE hipq_engines SET lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE engine_id = %(engine_id)s AND lease_until > clock_timestamp() RETURNING engine_id
