-- The entries of the audit log before a number, the newest first (primary key).
SELECT id, at, who, role, via, address, action, target, details FROM hipq_audit WHERE id < :before ORDER BY id DESC LIMIT :limit
