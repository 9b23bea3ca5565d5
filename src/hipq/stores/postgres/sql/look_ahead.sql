-- All that a claim under limits reads first, in one statement after the lock's own: whether a job of the asked types is ready,
-- and only then what counts against limits (index _owner), as held.sql sums it up; the jobs that others pass, as admitted.sql
-- finds them; the heads of claim groups, as claim_groups.sql does; and where these are few, the next places of each behind
-- its head, as claim_group.sql does.
WITH RECURSIVE claim_group AS (
  SELECT head.*, 1 AS depth FROM unnest(:types::text[]) AS type (name) CROSS JOIN LATERAL (
    SELECT job_type, lane, time_windows, throttle_factor, rank, id FROM {live}
    WHERE phase = {READY} AND job_type = type.name
      AND (lane, time_windows, throttle_factor) > (:lane, :windows, :factor) AND scheduled_run_time <= :now
    ORDER BY lane, time_windows, throttle_factor, rank, id LIMIT 1
  ) AS head
  UNION ALL
  SELECT head.*, s.depth + 1 FROM claim_group s CROSS JOIN LATERAL (
    SELECT job_type, lane, time_windows, throttle_factor, rank, id FROM {live}
    WHERE phase = {READY} AND job_type = s.job_type
      AND (lane, time_windows, throttle_factor) > (s.lane, s.time_windows, s.throttle_factor)
      AND scheduled_run_time <= :now
    ORDER BY lane, time_windows, throttle_factor, rank, id LIMIT 1
  ) AS head WHERE s.depth < :depth
), groups AS MATERIALIZED (
  SELECT count(*) AS number FROM claim_group
), ready AS MATERIALIZED (
  SELECT WHERE EXISTS (SELECT FROM {live} WHERE phase = {READY} AND job_type = ANY (:asked::text[]))
)
SELECT 'ready' AS kind, '', '', '', 0::bigint, '', 0::bigint FROM ready
UNION ALL
SELECT 'held', '', lane, '', sum(held)::bigint, '', min(held) FROM {live}
WHERE held <> 0 AND EXISTS (SELECT FROM ready) GROUP BY lane
UNION ALL (
  SELECT 'passed', job_type, lane, time_windows, throttle_factor, rank, id FROM {live}
  WHERE id = ANY (:passed::bigint[]) AND phase IN ({READY}, {PARKED}) AND scheduled_run_time <= :now ORDER BY rank, id
)
UNION ALL
SELECT 'head', job_type, lane, time_windows, throttle_factor, rank, id FROM claim_group
UNION ALL
SELECT 'behind', head.job_type, head.lane, head.time_windows, head.throttle_factor, next.rank, next.id
FROM (SELECT * FROM claim_group WHERE (SELECT number FROM groups) <= :few) AS head CROSS JOIN LATERAL (
  SELECT rank, id FROM {live} l
  WHERE phase = {READY} AND l.job_type = head.job_type AND l.lane = head.lane AND l.time_windows = head.time_windows
    AND l.throttle_factor = head.throttle_factor AND (l.rank, l.id) > (head.rank, head.id) AND scheduled_run_time <= :now
  ORDER BY l.rank, l.id LIMIT greatest(:places / (SELECT number FROM groups), 2)
) AS next
