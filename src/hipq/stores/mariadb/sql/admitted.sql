-- Jobs a throttler admitted, in order, those of them that can still start (primary key).
SELECT job_type, lane, time_windows, throttle_factor, rank, id FROM {live} FORCE INDEX (PRIMARY)
WHERE id {in ids} AND phase IN ({READY}, {PARKED}) AND scheduled_run_time <= :now ORDER BY rank, id
