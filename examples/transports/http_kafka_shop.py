"""HTTP out, Kafka back: the bank takes a POST, and its answers come on a topic.

    python examples/transports/bank.py http kafka
    python examples/transports/buy.py http://127.0.0.1:PORT kafka://127.0.0.1:PORT        # as the bank says

`hipq worker http_kafka_shop:app` does both; or `--no-listen`, and `hipq listen http_kafka_shop:app` apart.
"""

from __future__ import annotations

import os
from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("http_kafka_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to=os.environ.get("BANK_URL", "https://bank.example") + "/charges/{key}",
    answers="kafka://payments-in?group=shop",  # on the servers of $HIPQ_KAFKA_URL
    key="reference",  # where an answer has the job's key: a field of its JSON
    answer_id="event",  # what tells it from others: the same one again is a duplicate
    error=lambda message: message.json["status"] == "busy",  # the work failed: for the retry handler
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
