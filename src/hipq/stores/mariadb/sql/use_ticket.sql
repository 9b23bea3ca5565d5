-- Hand the ticket in, if it is still held (primary key).
UPDATE hipq_tickets SET engine_id = 0, note = ''
WHERE queue = {number} AND number = :ticket AND engine_id = :engine_id AND until > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
