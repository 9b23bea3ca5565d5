-- Queues whose tables somebody has locked against writers, or waits to: who asks for a lock after that waits, too.
-- Nothing here waits: names are looked up without a lock.
SELECT DISTINCT queue.number
FROM unnest(:queues::bigint[], :tables::text[]) AS queue (number, name)
JOIN pg_locks l ON l.relation IN (to_regclass(queue.name), to_regclass(queue.name || '_final'))
WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
