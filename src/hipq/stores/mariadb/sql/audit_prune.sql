-- Delete entries of the audit log from before a moment (index _time).
DELETE FROM hipq_audit WHERE at < :before ORDER BY at LIMIT :limit
