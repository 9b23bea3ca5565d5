-- The final row that so many are newer than (index _time, backwards).
SELECT update_time, id FROM {final} ORDER BY update_time DESC, id DESC LIMIT 1 OFFSET :count
