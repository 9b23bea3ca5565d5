-- Write schedules that are locked, and new ones (primary key): one statement for all of them.
INSERT INTO hipq_crons (queue, name, job_type, definition, since, last, next, version)
SELECT {number}, w ->> 0, w ->> 1, w ->> 2, (w ->> 3)::bigint, (w ->> 4)::bigint, (w ->> 5)::bigint, (w ->> 6)::bigint
FROM json_array_elements(:rows::json) AS w
ON CONFLICT (queue, name) DO UPDATE SET job_type = excluded.job_type, definition = excluded.definition,
  since = excluded.since, last = excluded.last, next = excluded.next, version = excluded.version
