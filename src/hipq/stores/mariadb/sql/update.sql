-- Write live rows that stay live, and that are locked: each names its token and changes it (primary key).
UPDATE {moved_rows} AS moved STRAIGHT_JOIN {live} l FORCE INDEX (PRIMARY) ON l.id = moved.id AND l.token = moved.token
SET l.token = moved.token + 1, l.job_data = moved.job_data, l.state = moved.state,
  l.phase = moved.phase, l.rank = moved.rank, l.priority = moved.priority, l.held = moved.held,
  l.scheduled_run_time = moved.scheduled_run_time, l.deadline = moved.deadline, l.wait = moved.wait,
  l.wait_key = moved.wait_key, l.attempt = moved.attempt, l.failures = moved.failures, l.crashes = moved.crashes,
  l.owner = moved.owner, l.error = moved.error, l.code = moved.code, l.exitcode = moved.exitcode,
  l.result = moved.result, l.history = moved.history, l.update_time = moved.update_time
