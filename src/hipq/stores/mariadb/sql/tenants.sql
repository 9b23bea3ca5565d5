-- Tenants that have ready jobs, the last first, by skipping from one to the next in the index _turns.
{skipping}
SELECT tenant FROM (
  SELECT turn AS tenant FROM {live} FORCE INDEX ({live}_turns) WHERE turn < :before GROUP BY turn
) AS found ORDER BY tenant DESC LIMIT :most
