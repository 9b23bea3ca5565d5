-- What there is to do in one queue; one such SELECT a queue, in one statement. Each part is one index probe (_ready,
-- _todo, _stage, _wait, _owner).
SELECT {number},
  EXISTS (SELECT FROM {live} WHERE phase = 'ready' AND job_type = ANY (%s))
    OR EXISTS (
      SELECT FROM {live}
      WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0 AND job_type = ANY (%s)
        AND coalesce(CASE WHEN phase = 'deciding' THEN meta::jsonb #>> '{retry,registered}' END, '') = ANY (%s)
    ) OR (%s AND coalesce(
      (SELECT min(job_type) FROM {live} WHERE phase = 'ready'),
      (SELECT min(job_type) FROM {live} WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0)
    ) IS NOT NULL),
  coalesce((SELECT min(scheduled_run_time) FROM {live} WHERE phase = 'scheduled'), 0),
  coalesce((SELECT min(deadline) FROM {live} WHERE phase = 'waiting'), 0),
  EXISTS (SELECT FROM {live} WHERE owner > 0),
  EXISTS (SELECT FROM {live} WHERE phase = 'parked'),
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
