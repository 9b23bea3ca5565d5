-- Take jobs: first those that wait for user code other than their handler (index _todo; not a run, `attempt` stays),
-- then ready ones in rank order, where `attempt` grows, and nowhere else. Safe because a row is locked before it is
-- written, rows locked by others are passed over, and an engine whose lease is over takes nothing. A critical job holds
-- nothing.
WITH todo AS MATERIALIZED (
  SELECT id FROM {live}
  WHERE {TODO} AND job_type = ANY (:types)
    AND {strategy} = ANY (:strategies)
  LIMIT :limit FOR UPDATE SKIP LOCKED
), ready AS MATERIALIZED (
  {pick}
)
UPDATE {live} l SET owner = :engine_id, token = token + 1, update_time = :now,
  state = CASE WHEN phase IN ({READY}, {PARKED}) THEN {RUNNING} ELSE state END,
  held = CASE WHEN phase NOT IN ({READY}, {PARKED}) THEN held
    WHEN job_type = ANY (:critical::text[]) THEN 0 ELSE throttle_factor END,
  attempt = CASE WHEN phase IN ({READY}, {PARKED}) THEN attempt + 1 ELSE attempt END,
  error = CASE WHEN phase IN ({READY}, {PARKED}) THEN {NONE} ELSE error END,
  deadline = CASE WHEN phase IN ({READY}, {PARKED}) THEN :now + (timeout * 1000000)::bigint ELSE deadline END,
  history = CASE WHEN phase IN ({READY}, {PARKED})
    THEN left(history, -1) || CASE history WHEN '[]' THEN '' ELSE ',' END || :entry || ']' ELSE history END,
  phase = CASE WHEN phase IN ({READY}, {PARKED}) THEN {EXECUTING} ELSE phase END
WHERE id = ANY (ARRAY(SELECT id FROM todo UNION ALL SELECT id FROM ready))
  AND EXISTS (SELECT FROM hipq_engines WHERE engine_id = :engine_id AND lease_until > clock_timestamp())
RETURNING {columns}
