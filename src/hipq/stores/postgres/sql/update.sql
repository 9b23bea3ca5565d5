-- Write live rows that stay live: each names its token and changes it. No row matched = the claim was lost, and its id
-- does not come back. If all are saved, they are counted. One probe of the primary key a row, in the order of the ids given (ANY: see `_SETTINGS`).
WITH saved AS (
UPDATE {live} l SET token = moved.token + 1, job_data = moved.job_data, state = moved.state,
  phase = moved.phase, rank = moved.rank, priority = moved.priority, held = moved.held,
  scheduled_run_time = moved.scheduled_run_time, deadline = moved.deadline, wait = moved.wait, wait_key = moved.wait_key,
  attempt = moved.attempt, failures = moved.failures, crashes = moved.crashes, owner = moved.owner, error = moved.error,
  code = moved.code, exitcode = moved.exitcode, result = moved.result, history = moved.history,
  update_time = moved.update_time
FROM json_to_recordset(:rows) AS moved (
  id BIGINT, token BIGINT, job_data TEXT, state TEXT, phase TEXT, rank TEXT, priority BIGINT, held BIGINT,
  scheduled_run_time BIGINT, deadline BIGINT, wait TEXT, wait_key TEXT, attempt BIGINT, failures BIGINT,
  crashes BIGINT, owner BIGINT, error TEXT, code TEXT, exitcode BIGINT, result TEXT, history TEXT, update_time BIGINT
)
WHERE l.id = ANY (ARRAY[moved.id]) AND l.token = moved.token
RETURNING l.id
), counted AS (
  SELECT hipq_count(:counts::json) FROM saved HAVING count(*) = :jobs
)
SELECT id FROM saved WHERE (SELECT count(*) FROM counted) >= 0
