-- The queues that have counters of periods before a moment, with the first of those (primary key: a look at each queue).
SELECT queue, min(starts) FROM hipq_activity WHERE queue {in queues} AND grain = :grain AND starts < :before GROUP BY queue
