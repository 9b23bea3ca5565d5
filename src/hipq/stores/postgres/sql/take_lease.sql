-- A new engine; those whose lease is over go. Rows they own are found by the anti-join in orphans.sql, with or without
-- their engine's row.
WITH old AS MATERIALIZED (
  SELECT engine_id FROM hipq_engines WHERE lease_until <= statement_timestamp() FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM hipq_engines WHERE engine_id = ANY (ARRAY(SELECT engine_id FROM old))
)
INSERT INTO hipq_engines (lease_until, label, serves, version, since)
VALUES (clock_timestamp() + make_interval(secs => :seconds), :label, :serves, :version, :since) RETURNING engine_id
