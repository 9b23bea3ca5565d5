-- A tick, unless another engine has added it (primary key).
UPDATE hipq_crons SET last = :tick WHERE queue = {number} AND name = :name AND last = :last
