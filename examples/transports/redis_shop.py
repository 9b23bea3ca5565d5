"""Redis Streams: requests on one stream, answers on another.

    python examples/transports/bank.py redis
    python examples/transports/buy.py redis://127.0.0.1:PORT        # as the bank says

The server is that of $HIPQ_REDIS_URL. It keeps what it confirmed if it has `appendonly yes` and `appendfsync always`.
What was read stays in a stream until something cuts it: `maxlen` does, whether it was read or not.
"""

from __future__ import annotations

from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("redis_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to="redis://payments-out?maxlen=100000",
    answers="redis://payments-in?idle=15",  # what a dead listener had comes again after so many seconds
    key="reference",
    answer_id="event",  # without this: the entry's id
    error=lambda message: message.json["status"] == "busy",  # the work failed: for the retry handler
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
