-- Jobs that were picked, locked by primary key; one that somebody else has locked is left out, and so is one that was claimed
-- since.
SELECT id FROM {live} FORCE INDEX (PRIMARY) WHERE id {in ids} AND phase IN ({READY}, {PARKED}) FOR UPDATE SKIP LOCKED
