"""The application under test: one job type without code. Where its requests go and its answers come from is told by the
environment."""

from __future__ import annotations

import os
from typing import Any

from hipq import Fault, Hipq, Job, Retry, fixed
from hipq.transports import Message

app = Hipq("bank", os.environ["ACCEPTANCE_DB"], callback_url=os.environ.get("ACCEPTANCE_CALLBACK_URL"))
orders = app.queue("orders")


def says_error(message: Message) -> bool:
    return bool(message.json["status"] == "error")


if answers := os.environ.get("ACCEPTANCE_ANSWERS"):
    way: dict[str, Any] = {"answers": answers, "key": "ref", "error": says_error}
else:
    way = {"callback": True}
charge = orders.request("charge", to=os.environ["ACCEPTANCE_TO"], timeout=600, **way)


@charge.retry
def again(job: Job[Any], fault: Fault) -> Retry | None:
    """A request that could not be sent is sent again; an answer that says the work failed is the end."""
    return None if fault.type == "answer" else fixed(0.3, attempts=500)(job, fault)
