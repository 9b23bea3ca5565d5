-- The locks of keys, in an order all share (primary key): written, so that two nodes of a cluster cannot both have one.
INSERT INTO hipq_locks (number) VALUES {numbers} ON DUPLICATE KEY UPDATE taken = taken + 1
