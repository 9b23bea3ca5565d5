-- Delete the counters of some periods (primary key).
DELETE FROM hipq_activity WHERE queue = :queue AND grain = :grain AND starts >= :since AND starts < :until
