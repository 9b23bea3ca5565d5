-- Tell engines elsewhere, when this transaction commits, that there is something to do from a place of a queue on.
INSERT INTO hipq_news (writer, queue, rank, job) VALUES {told}
