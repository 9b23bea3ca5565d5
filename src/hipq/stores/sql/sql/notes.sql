-- The notes of one kind whose names are in a range (primary key).
SELECT name, value FROM hipq_notes
WHERE kind = :kind AND name >= :start AND name < :end AND value <> '' ORDER BY name
