-- Write the rules of a queue (primary key): the write lock is the admission lock.
UPDATE hipq_queues SET rules = :rules WHERE number = {number}
