-- Write schedules that are locked, and new ones (primary key): one statement for all of them.
INSERT INTO hipq_crons (queue, name, job_type, definition, since, last, next, version)
SELECT {number}, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]')
FROM json_each(:rows) WHERE true
ON CONFLICT (queue, name) DO UPDATE SET job_type = excluded.job_type, definition = excluded.definition,
  since = excluded.since, last = excluded.last, next = excluded.next, version = excluded.version
