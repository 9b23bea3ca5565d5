-- Write the rules of a queue, whose admission lock is held (primary key).
UPDATE hipq_queues SET rules = :rules WHERE number = {number}
