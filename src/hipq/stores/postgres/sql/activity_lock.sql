-- Whether nobody else folds counters now; nobody will before this transaction ends. Queue 0: there is none.
SELECT pg_try_advisory_xact_lock(1751740529, 0)
