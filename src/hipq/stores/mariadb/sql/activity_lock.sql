-- Whether nobody else folds counters now; nobody will before this transaction ends.
SELECT number FROM hipq_locks WHERE number = 0 FOR UPDATE SKIP LOCKED
