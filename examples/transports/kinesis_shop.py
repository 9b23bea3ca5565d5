"""Amazon Kinesis: requests on one stream, answers on another.

    python examples/transports/bank.py kinesis
    python examples/transports/buy.py 'kinesis://...'        # as the bank says

A record is a partition key and a body, no headers: the key of an answer is its partition key, or in its body; and
that the work failed must be said in the body, too. How far each shard was read is in hipq's database.
"""

from __future__ import annotations

from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("kinesis_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to="kinesis://payments-out",  # with the job's key as the partition key
    answers="kinesis://payments-in?start=latest",  # what was there before the first listener is not wanted
    key=lambda message: message.key,
    answer_id="event",  # without this: shard and sequence number
    error=lambda message: message.json["status"] == "busy",  # the work failed: for the retry handler
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
