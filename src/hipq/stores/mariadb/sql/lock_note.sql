-- A note that nobody else changes before the end of the transaction (primary key). There is always a row to lock: else two who
-- find none would both write one.
INSERT INTO hipq_notes (kind, name, value) VALUES (:kind, :name, '') ON DUPLICATE KEY UPDATE value = hipq_notes.value;
SELECT value FROM hipq_notes WHERE kind = :kind AND name = :name FOR UPDATE
