-- How many jobs there are of the other phases, up to :most each, and the time or the deadline of the first of each: heads of
-- indexes (_due, _owner, _parked).
SELECT {SCHEDULED}, count(*), coalesce(min(due), 0) FROM (
  SELECT due FROM {live} FORCE INDEX ({live}_due) WHERE phase = {SCHEDULED} ORDER BY due LIMIT :most
) AS scheduled
UNION ALL SELECT {WAITING}, count(*), coalesce(min(due), 0) FROM (
  SELECT due FROM {live} FORCE INDEX ({live}_due) WHERE phase = {WAITING} ORDER BY due LIMIT :most
) AS waiting
UNION ALL SELECT {EXECUTING}, count(*), 0 FROM (
  SELECT owner FROM {live} FORCE INDEX ({live}_owner) WHERE owner > 0 LIMIT :most
) AS executing
UNION ALL SELECT {PARKED}, count(*), 0 FROM (
  SELECT id FROM {live} FORCE INDEX ({live}_parked) WHERE parked IS NOT NULL LIMIT :most
) AS parked
