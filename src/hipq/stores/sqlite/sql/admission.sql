-- A queue's rules and what its limits remember (primary key).
SELECT rules, admission FROM hipq_queues WHERE number = {number}
