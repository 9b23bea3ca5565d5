"""Kafka: requests on one topic, answers on another.

    python examples/transports/bank.py kafka
    python examples/transports/buy.py kafka://127.0.0.1:PORT        # as the bank says

The servers are those of $HIPQ_KAFKA_URL: kafka://user:password@one:9092,two:9092. An option with a dot in its name
goes to librdkafka as it is, there or here. Topics must be there, unless the server makes them.
"""

from __future__ import annotations

from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("kafka_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to="kafka://payments-out",  # with the job's key as Kafka's, so that requests of one key stay in order
    answers="kafka://payments-in?group=shop&session.timeout.ms=6000",  # a killed listener is given up after 6 s
    key=lambda message: message.key,  # also without this, if there is no header hipq-key
    answer_id="event",  # without this: topic, partition and offset
    error=lambda message: message.json["status"] == "busy",  # the work failed: for the retry handler
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
