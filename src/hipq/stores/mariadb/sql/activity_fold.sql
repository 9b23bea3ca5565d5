-- Counters of some periods, or those of connections, to be added up and deleted (primary key). What somebody is adding to
-- is passed over, until the next time: so nobody waits here with rows locked that others wait for.
SELECT starts, job_type, writer, {counters} FROM hipq_activity FORCE INDEX (PRIMARY)
WHERE queue = :queue AND grain = :grain AND starts >= :since AND starts < :until AND {which}
LIMIT 2000 FOR UPDATE SKIP LOCKED
