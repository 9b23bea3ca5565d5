-- Write the rules of a queue, whose admission lock is held (primary key). Claims by other rules notice the new version.
UPDATE hipq_queues SET rules = :rules, version = version + 1 WHERE number = {number}
