-- Prolong a lease that is alive (primary key). One that is over stays over: its jobs may be somebody else's by now. And count
-- the engines that are alive and serve the same; and what the clock says.
WITH crew AS MATERIALIZED (
  SELECT count(*) AS size, count(*) FILTER (WHERE engine_id < :engine_id) AS place FROM hipq_engines
  WHERE lease_until > clock_timestamp() AND serves = (SELECT serves FROM hipq_engines WHERE engine_id = :engine_id)
)
UPDATE hipq_engines SET lease_until = clock_timestamp() + make_interval(secs => :seconds)
WHERE engine_id = :engine_id AND lease_until > clock_timestamp()
RETURNING (SELECT size FROM crew), (SELECT place FROM crew), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
