-- An engine that leaves (primary key).
DELETE FROM hipq_engines WHERE sysid = %(sysid)s RETURNING sysid
