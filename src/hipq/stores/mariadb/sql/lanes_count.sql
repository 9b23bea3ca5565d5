-- How many jobs of one tenant's lane are ready, up to so many, and of which type they are (index _turns); such SELECTs are
-- joined into one statement.
(
  SELECT min(job_type), :lane, count(*) FROM (
    SELECT job_type FROM {live} FORCE INDEX ({live}_turns) WHERE turn = :tenant AND lane = :lane LIMIT :count
  ) AS counted
)
