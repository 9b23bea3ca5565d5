-- What there is to do in one queue; one such SELECT a queue, in one statement. Each part is one index probe (_ready,
-- _todo, _stage, _wait, _owner, _parked, hipq_answers_new).
SELECT {number},
  EXISTS (SELECT FROM {live} WHERE phase = {READY} AND job_type = ANY (%s))
    OR EXISTS (
      SELECT FROM {live}
      WHERE {TODO} AND job_type = ANY (%s)
        AND {strategy} = ANY (%s)
    ) OR (%s AND coalesce(
      (SELECT min(job_type) FROM {live} WHERE phase = {READY}),
      (SELECT min(job_type) FROM {live} WHERE {TODO})
    ) IS NOT NULL),
  coalesce((SELECT min(scheduled_run_time) FROM {live} WHERE phase = {SCHEDULED}), 0),
  coalesce((SELECT min(deadline) FROM {live} WHERE phase = {WAITING}), 0),
  EXISTS (SELECT FROM {live} WHERE owner > 0),
  EXISTS (SELECT FROM {live} WHERE phase = {PARKED}),
  EXISTS (SELECT FROM hipq_answers WHERE queue = {number} AND state = {NEW}),
  (SELECT crons FROM hipq_queues WHERE number = {number}),
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
