-- Give a queue's ticket back unused, and note why (primary key).
UPDATE hipq_tickets SET engine_id = 0, note = :note WHERE queue = {number} AND number = :ticket
