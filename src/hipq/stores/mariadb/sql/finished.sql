-- Delete live rows that were copied to the final table (primary key).
DELETE FROM {live} WHERE id {in ids}
