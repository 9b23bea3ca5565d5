-- Prolong a lease that is alive (primary key). One that is over stays over: its jobs may be somebody else's by now. And count
-- the engines that are alive and serve the same.
UPDATE hipq_engines SET lease_until = :steady + CAST(round(:seconds * 1000000) AS INTEGER)
WHERE engine_id = :engine_id AND lease_until > :steady AND boot = :boot
RETURNING
  (SELECT count(*) FROM hipq_engines AS o
    WHERE o.lease_until > :steady AND o.boot = :boot AND o.serves = hipq_engines.serves),
  (SELECT count(*) FROM hipq_engines AS o
    WHERE o.lease_until > :steady AND o.boot = :boot AND o.serves = hipq_engines.serves AND o.engine_id < :engine_id),
  0
