-- What the limits of a queue remember from claim to claim (primary key); its admission lock is held.
UPDATE hipq_queues SET admission = :memory WHERE number = {number}
