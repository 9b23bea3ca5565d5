-- Take jobs: first those that wait for user code other than their handler (index _todo; not a run, `attempt` stays),
-- then ready ones in rank order, where `attempt` grows, and nowhere else. Safe because a row is locked before it is
-- written, rows locked by others are passed over, and an engine whose lease is over takes nothing. A critical job holds
-- nothing.
WITH todo AS MATERIALIZED (
  SELECT id FROM {live}
  WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0 AND job_type = ANY (%(types)s)
    AND coalesce(CASE WHEN phase = 'deciding' THEN meta::jsonb #>> '{retry,registered}' END, '') = ANY (%(strategies)s)
  LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), ready AS MATERIALIZED (
  {pick}
)
UPDATE {live} l SET owner = %(engine_id)s, token = token + 1, update_time = %(now)s,
  state = CASE WHEN phase IN ('ready', 'parked') THEN 'running' ELSE state END,
  held = CASE WHEN phase NOT IN ('ready', 'parked') THEN held
    WHEN job_type = ANY (%(critical)s::text[]) THEN 0 ELSE throttle_factor END,
  attempt = CASE WHEN phase IN ('ready', 'parked') THEN attempt + 1 ELSE attempt END,
  error = CASE WHEN phase IN ('ready', 'parked') THEN 'NONE' ELSE error END,
  deadline = CASE WHEN phase IN ('ready', 'parked') THEN %(now)s + (timeout * 1000000)::bigint ELSE deadline END,
  history = CASE WHEN phase IN ('ready', 'parked')
    THEN left(history, -1) || CASE history WHEN '[]' THEN '' ELSE ',' END || %(entry)s || ']' ELSE history END,
  phase = CASE WHEN phase IN ('ready', 'parked') THEN 'executing' ELSE phase END
WHERE id = ANY (ARRAY(SELECT id FROM todo UNION ALL SELECT id FROM ready))
  AND EXISTS (SELECT FROM hipq_engines WHERE engine_id = %(engine_id)s AND lease_until > clock_timestamp())
RETURNING {columns}
