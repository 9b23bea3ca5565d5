-- Move rows that became final to the final table. Each names its token: no row matched = the claim was lost, and its id
-- does not come back. If all are saved, they are counted. One probe of the primary key a row, in the order of the ids given (ANY: see `_SETTINGS`).
WITH done AS (
  SELECT * FROM json_to_recordset(:rows) AS done (
    id BIGINT, token BIGINT, job_data TEXT, priority BIGINT, scheduled_run_time BIGINT, attempt BIGINT, failures BIGINT, crashes BIGINT, error TEXT, code TEXT,
    exitcode BIGINT, result TEXT, history TEXT, update_time BIGINT
  )
), gone AS (
  DELETE FROM {live} l USING done WHERE l.id = ANY (ARRAY[done.id]) AND l.token = done.token
  RETURNING l.id, l.tenant, l.lane, l.job_type, l.job_key, coalesce(done.job_data, l.job_data), {FINAL}, {DONE}, l.rank,
    done.priority, l.throttle_factor, 0, l.time_windows, l.timeout, done.scheduled_run_time, l.deadline, '', l.wait_key, done.attempt,
    done.failures, done.crashes, 0, l.token + 1, done.error, done.code, done.exitcode, done.result, l.meta, done.history,
    l.create_time,
    done.update_time
), counted AS (
  SELECT hipq_count(:counts::json) FROM gone HAVING count(*) = :jobs
)
INSERT INTO {final} (
  id, tenant, lane, job_type, job_key, job_data, state, phase, rank, priority, throttle_factor, held, time_windows,
  timeout, scheduled_run_time, deadline, wait, wait_key, attempt, failures, crashes, owner, token, error, code, exitcode, result, meta, history,
  create_time, update_time
)
SELECT * FROM gone WHERE (SELECT count(*) FROM counted) >= 0 RETURNING id
