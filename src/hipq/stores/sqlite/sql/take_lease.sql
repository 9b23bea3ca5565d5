-- A new engine.
INSERT INTO hipq_engines (lease_until, boot, label, serves)
VALUES (:steady + CAST(round(:seconds * 1000000) AS INTEGER), :boot, :label, :serves) RETURNING engine_id
