-- How many jobs there are of the other phases, up to :most each, and the time or the deadline of the first of each: heads of
-- indexes (_stage, _wait, _owner, _parked).
SELECT {SCHEDULED}, count(*), coalesce(min(due), 0) FROM (
  SELECT scheduled_run_time AS due FROM {live} INDEXED BY {live}_stage
  WHERE phase = {SCHEDULED} ORDER BY scheduled_run_time LIMIT :most
)
UNION ALL SELECT {WAITING}, count(*), coalesce(min(due), 0) FROM (
  SELECT deadline AS due FROM {live} INDEXED BY {live}_wait WHERE phase = {WAITING} ORDER BY deadline LIMIT :most
)
UNION ALL SELECT {EXECUTING}, count(*), 0 FROM (
  SELECT owner FROM {live} INDEXED BY {live}_owner WHERE owner <> 0 AND owner > 0 ORDER BY owner LIMIT :most
)
UNION ALL SELECT {PARKED}, count(*), 0 FROM (
  SELECT id FROM {live} INDEXED BY {live}_parked WHERE phase = {PARKED} ORDER BY rank, id LIMIT :most
)
