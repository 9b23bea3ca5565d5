-- What the limits of a queue remember from claim to claim, in the transaction that has its admission lock (primary key). The
-- row is written by each claim: a lock is known to one node of a cluster only, and of two nodes that write a row one begins
-- again.
UPDATE hipq_queues SET admission = :memory, claims = claims + 1 WHERE number = {number}
