-- Lock live rows in the order of their ids (primary key), before a transaction writes them in more than one statement:
-- two transactions that share rows then wait for each other and never deadlock.
SELECT FROM {live} WHERE id = ANY (:ids::bigint[]) ORDER BY id FOR UPDATE
