-- Write live rows that stay live: each names its token and changes it. No row matched = the claim was lost.
WITH moved (id, token, job_data, state, phase, rank, priority, held, scheduled_run_time, deadline, wait, wait_key,
  attempt, failures, crashes, owner, error, code, exitcode, result, history, update_time) AS ({rows})
UPDATE {live} SET token = moved.token + 1, job_data = moved.job_data, state = moved.state,
  phase = moved.phase, rank = moved.rank, priority = moved.priority, held = moved.held,
  scheduled_run_time = moved.scheduled_run_time, deadline = moved.deadline, wait = moved.wait, wait_key = moved.wait_key,
  attempt = moved.attempt, failures = moved.failures, crashes = moved.crashes, owner = moved.owner, error = moved.error,
  code = moved.code, exitcode = moved.exitcode, result = moved.result, history = moved.history,
  update_time = moved.update_time
FROM moved WHERE {live}.id = moved.id AND {live}.token = moved.token
