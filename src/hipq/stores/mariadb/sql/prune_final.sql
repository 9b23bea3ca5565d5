-- Delete final rows that are locked (primary key).
DELETE FROM {final} WHERE id {in ids}
