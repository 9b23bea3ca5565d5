-- The notes of one kind whose names are in a range (primary key).
SELECT name, value FROM hipq_notes
WHERE kind = %(kind)s AND name >= %(start)s AND name < %(end)s AND value <> '' ORDER BY name
