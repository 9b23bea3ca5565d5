-- The counters of some queues in periods of so many microseconds (primary key). What was folded into longer periods counts
-- where those begin.
SELECT starts DIV :period * :period AS begins, {by_queue} AS of_queue, {by_type} AS of_type, {sums}
FROM hipq_activity
WHERE queue {in queues} AND grain IN (60, 3600, 86400) AND starts >= :since AND starts < :until
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
