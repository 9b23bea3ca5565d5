-- A tick, unless another engine has added it (primary key).
UPDATE hipq_crons SET last = :tick WHERE queue = :queue AND name = :name AND last = :last
