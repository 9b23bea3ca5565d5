-- The queue, if the handler of this job has added a job to it (indexes _parent). One such SELECT a queue.
SELECT {number} AS queue WHERE EXISTS (SELECT 1 FROM {live} WHERE {CHILD} AND {parent} = :parent)
OR EXISTS (SELECT 1 FROM {final} WHERE {CHILD} AND {parent} = :parent)
