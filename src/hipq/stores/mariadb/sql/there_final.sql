-- Those of these ids that final jobs have (primary key).
SELECT id FROM {final} WHERE id {in ids}
