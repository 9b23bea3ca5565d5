-- What a job's handler has said of its progress in this attempt (primary key).
SELECT fraction, message, at FROM hipq_progress WHERE id = :id AND attempt = :attempt
