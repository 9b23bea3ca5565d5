-- Take rows that wait for user code other than their handler, which are locked, if the lease of the engine is alive. Not a
-- run: `attempt` stays.
UPDATE {live} SET owner = :engine_id, token = token + 1, update_time = :now
WHERE id {in ids} AND owner = 0
  AND EXISTS (SELECT 1 FROM hipq_engines WHERE engine_id = :engine_id AND lease_until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))
