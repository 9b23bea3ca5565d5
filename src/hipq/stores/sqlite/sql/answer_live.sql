-- The live jobs that these keys find (indexes _key and _waited, a probe or two each): by their own key first, else by that
-- of their wait; 0 = none.
SELECT json_group_array(json_array(json_extract(wanted.value, '$[0]'), coalesce((
  SELECT l.id FROM {live} l INDEXED BY {live}_key
  WHERE l.job_key = json_extract(wanted.value, '$[1]') AND l.job_type = json_extract(wanted.value, '$[2]')
    AND l.tenant = json_extract(wanted.value, '$[3]')
), (
  SELECT l.id FROM {live} l INDEXED BY {live}_waited
  WHERE l.wait_key = json_extract(wanted.value, '$[1]') AND l.job_type = json_extract(wanted.value, '$[2]')
    AND l.tenant = json_extract(wanted.value, '$[3]') AND l.wait_key <> ''
), 0)))
FROM json_each(:rows) AS wanted
