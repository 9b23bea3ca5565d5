-- The live jobs that have these ids (primary key), where an insert cannot say what it has added.
SELECT id, create_time FROM {live} WHERE id {in ids}
