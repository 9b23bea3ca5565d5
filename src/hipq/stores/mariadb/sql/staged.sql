-- Jobs that are locked become ready (primary key).
UPDATE {live} SET phase = {READY}, token = token + 1 WHERE id {in ids}
