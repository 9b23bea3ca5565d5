"""HTTP: the request is a POST, and its answer is brought to a signed URL.

    python examples/transports/bank.py http
    python examples/transports/buy.py http://127.0.0.1:PORT        # as the bank says

A worker sends, `hipq callbacks http_shop:app` takes the answers (or your own web application: docs/callbacks.md).
Where that is reached from outside is $HIPQ_CALLBACK_URL, or `callback_url` in hipq.toml.
"""

from __future__ import annotations

import os
from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("http_shop")
orders = app.queue("orders", throttle_limit=100)  # so many may be under way at a time, sent and not yet answered

charge = orders.request(
    "charge",
    to=os.environ.get("BANK_URL", "https://bank.example") + "/charges/{key}",
    callback=True,  # the header hipq-callback says where the answer goes; or put {callback_url} where the bank wants it
    headers={"x-shop": "17", "x-attempt": "{attempt}"},
    body={"card": "{data.card}", "cents": "{data.amount}", "tell": "{callback_url}"},  # without it, the job's data
    send_timeout=10,  # seconds for the request itself: the reply, not the answer
    timeout=30,  # for both: then it is asked again
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
