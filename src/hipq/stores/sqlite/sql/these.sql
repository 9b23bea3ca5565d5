-- Live jobs by their ids, in order (primary key). Only the ids are sorted: to sort whole rows costs as much as reading them.
SELECT l.* FROM (SELECT id AS wanted FROM {live} WHERE id {in ids} ORDER BY rank, id) CROSS JOIN {live} l WHERE l.id = wanted
