-- What belongs to a tenant is found without reading what others have. Jobs of no tenant are in none of these: so they cost
-- a library's queues nothing.

-- Its answers: what they take is counted.
CREATE INDEX hipq_answers_tenant ON hipq_answers (tenant, id) WHERE tenant <> '';

-- :each-queue
-- Its jobs, in the order of their ids;
CREATE INDEX {live}_tenant ON {live} (tenant, id) WHERE tenant <> '';
-- those that can be claimed, by lane: also which tenants have such;
CREATE INDEX {live}_turns ON {live} (tenant, lane, rank) WHERE phase = 'ready' AND tenant <> '';
-- those that have ended, with the times that a list shows: in the row they are behind a result of megabytes, all pages of
-- which SQLite would read;
CREATE INDEX {final}_tenant ON {final} (tenant, id, create_time, update_time) WHERE tenant <> '';
-- and those by key: others may have ended a million under the same.
CREATE INDEX {final}_named ON {final} (tenant, job_key, id, create_time, update_time) WHERE tenant <> '';
