-- A schedule that is new here begins now.
INSERT INTO hipq_crons (queue, name, last) VALUES (%(queue)s, %(name)s, %(now)s) ON CONFLICT DO NOTHING
