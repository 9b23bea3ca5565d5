"""RabbitMQ: requests in one queue, answers in another.

    python examples/transports/bank.py amqp://guest:guest@localhost
    python examples/transports/buy.py amqp://guest:guest@localhost        # as the bank says

The server is that of $HIPQ_AMQP_URL. A queue that is not there is made by the first who listens to it: durable, with
the server's defaults. `amqp://payments?exchange=NAME` sends to an exchange, with `payments` as the routing key.
"""

from __future__ import annotations

from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("amqp_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to="amqp://payments-out",  # with the job's key as the correlation id
    answers="amqp://payments-in?prefetch=500",  # so many at once are handed to a listener, at most
    key=lambda message: message.key,  # the correlation id
    answer_id="event",  # without this: the message id; without one, what the message is
    error=lambda message: message.json["status"] == "busy",  # the work failed: for the retry handler
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
