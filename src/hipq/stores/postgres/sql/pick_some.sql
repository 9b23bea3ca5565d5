-- The first ready jobs of several types in their plain claim groups: the heads of each (index _ready) merged in rank order,
-- then locked by primary key; none if the rules are not the known ones, or there are other claim groups. More heads are read
-- than are wanted, since each other engine may have locked as many. The phase is compared again for rows that were
-- claimed in between; spelled so that no index but the primary key fits.
WITH wanted AS MATERIALIZED (
    SELECT :limit * (1 + least(count(*), 8)) AS heads FROM hipq_engines
  )
  SELECT id FROM {live}
  WHERE phase || '' = {READY} AND id = ANY (ARRAY(
    SELECT head.id FROM unnest(:types::text[]) AS type (name) CROSS JOIN LATERAL (
      SELECT id, rank FROM {live}
      WHERE phase = {READY} AND job_type = type.name AND lane = '' AND time_windows = '[]' AND throttle_factor = 1000
        AND (rank, id) >= (:rank, :id) AND scheduled_run_time <= :now
      ORDER BY rank, id LIMIT (SELECT heads FROM wanted)
    ) AS head ORDER BY head.rank, head.id LIMIT (SELECT heads FROM wanted)
  ))
    AND (SELECT hipq_version({number})) = :version
    AND NOT EXISTS (
      SELECT FROM unnest(:types::text[]) AS type (name) CROSS JOIN LATERAL (
        SELECT FROM {live} WHERE phase = {READY} AND job_type = type.name
          AND (lane, time_windows, throttle_factor) > ('', '[]', 1000) LIMIT 1
      ) AS other
    )
    AND NOT EXISTS (
      SELECT FROM unnest(:types::text[]) AS type (name) CROSS JOIN LATERAL (
        SELECT FROM {live} WHERE phase = {READY} AND job_type = type.name
          AND lane = '' AND time_windows = '[]' AND throttle_factor < 1000 LIMIT 1
      ) AS lighter
    )
  ORDER BY rank, id LIMIT :limit - (SELECT count(*) FROM todo) FOR UPDATE SKIP LOCKED
