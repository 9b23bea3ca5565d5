-- Which of these ids jobs have, live or final (primary keys).
SELECT id FROM {live} WHERE id {in ids} UNION ALL SELECT id FROM {final} WHERE id {in ids}
