-- Lanes of one tenant in which jobs are ready, from a place backwards, by skipping from one to the next in the index _turns;
-- such SELECTs are joined into one statement.
{skipping}
(
  SELECT lane, tenant FROM (
    SELECT turn AS tenant, lane FROM {live} FORCE INDEX ({live}_turns)
    WHERE turn = :tenant AND lane < :lane GROUP BY turn, lane
  ) AS found ORDER BY lane DESC LIMIT :each
)
