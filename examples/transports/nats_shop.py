"""NATS: requests on one subject of JetStream, answers on another.

    python examples/transports/bank.py nats
    python examples/transports/buy.py nats://127.0.0.1:PORT        # as the bank says

The servers are those of $HIPQ_NATS_URL. A stream that takes the subject is made by the first who listens to it, in
files; what is sent to a subject that no stream takes is an error.
"""

from __future__ import annotations

from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("nats_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to="nats://payments-out",
    answers="nats://payments-in?ack_wait=20",  # what a dead listener had comes again after so many seconds
    key="reference",
    answer_id="event",  # without this: the stream and its sequence number
    error=lambda message: message.json["status"] == "busy",  # the work failed: for the retry handler
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
