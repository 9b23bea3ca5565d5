-- Add to the counters of minutes (primary key).
SELECT hipq_count(:counts::json)
