-- Those of these ids that live jobs have (primary key).
SELECT id FROM {live} WHERE id {in ids}
