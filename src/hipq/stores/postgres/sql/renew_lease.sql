-- Prolong a lease that is alive (primary key). One that is over stays over: its jobs may be somebody else's by now.
UPDATE hipq_engines SET lease_until = clock_timestamp() + make_interval(secs => :seconds)
WHERE engine_id = :engine_id AND lease_until > clock_timestamp()
