-- The tokens of live rows, which are locked in the order of their ids (primary key), before a transaction writes them: two
-- transactions that share rows then wait for each other.
SELECT id, token FROM {live} FORCE INDEX (PRIMARY) WHERE id {in ids} ORDER BY id FOR UPDATE
