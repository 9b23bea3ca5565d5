-- Answers that came once more (primary key).
UPDATE hipq_answers SET copies = copies + 1 WHERE id {in ids}
