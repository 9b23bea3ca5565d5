-- A schedule that is new here begins now.
INSERT INTO hipq_crons (queue, name, last) VALUES ({number}, :name, :now) ON CONFLICT DO NOTHING
