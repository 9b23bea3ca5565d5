-- One more entry of the audit log.
INSERT INTO hipq_audit (at, who, role, via, address, action, target, details)
VALUES (:at, :who, :role, :via, :address, :action, :target, :details)
