-- A new engine.
INSERT INTO hipq_engines (lease_until, boot, label, serves, version, since)
VALUES (:steady + CAST(round(:seconds * 1000000) AS INTEGER), :boot, :label, :serves, :version, :since) RETURNING engine_id
