-- A note that nobody else changes before the end of the transaction (primary key).
SELECT value FROM hipq_notes WHERE kind = :kind AND name = :name FOR UPDATE
