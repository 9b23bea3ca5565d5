-- Prolong a lease that is alive (primary key). One that is over stays over: its jobs may be somebody else's by now. And count
-- the engines that are alive and serve the same; and what the clock says.
UPDATE hipq_engines SET lease_until = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) + CAST(round(:seconds * 1000000) AS SIGNED)
WHERE engine_id = :engine_id AND lease_until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
SELECT count(*), coalesce(CAST(sum(o.engine_id < e.engine_id) AS SIGNED), 0), CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) FROM hipq_engines e JOIN hipq_engines o ON o.serves = e.serves
WHERE ROW_COUNT() = 1 AND e.engine_id = :engine_id AND (o.lease_until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) OR o.engine_id = e.engine_id) GROUP BY e.engine_id
