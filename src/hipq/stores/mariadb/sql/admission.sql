-- A queue's rules and what its limits remember (primary key). Locked alone, it is the queue's admission lock; whoever claims
-- without limits shares it, and who changes the rules waits for them all. A statement of its own: what the next one reads
-- is as of after the wait, and of two claims the second sees what the first took.
SELECT rules, admission FROM hipq_queues WHERE number = {number} {lock}
