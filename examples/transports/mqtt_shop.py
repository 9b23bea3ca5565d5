"""MQTT 5: requests on one topic, answers on another.

    python examples/transports/bank.py mqtt
    python examples/transports/buy.py mqtt://127.0.0.1:PORT        # as the bank says

The server is that of $HIPQ_MQTT_URL; a topic with levels is written mqtt:///shop/payments. A server keeps messages
only for who has listened before: start a worker, or `hipq listen`, before the first request. For Mosquitto see
docs/transports.md.
"""

from __future__ import annotations

from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("mqtt_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to="mqtt://payments-out",  # QoS 1, with the job's key as the correlation data
    answers="mqtt://payments-in?expiry=86400",  # so many seconds the server keeps what comes while nobody listens
    key="reference",
    answer_id="event",  # without this: the property hipq-id; without one, what the message is
    error=lambda message: message.json["status"] == "busy",  # the work failed: for the retry handler
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
