-- Parked jobs, in order (index _parked). Rows somebody else has locked are left for the next time.
SELECT rank, id FROM {live} FORCE INDEX ({live}_parked) WHERE parked IS NOT NULL
ORDER BY parked, id LIMIT :limit FOR UPDATE SKIP LOCKED
