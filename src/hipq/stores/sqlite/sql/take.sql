-- Take rows that wait for user code other than their handler (their retry handler). Not a run: `attempt` stays.
UPDATE {live} SET owner = :engine_id, token = token + 1, update_time = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND owner = 0
