"""Any two: the request leaves on one transport, and its answer comes back on another.

    python examples/transports/bank.py redis nats
    python examples/transports/buy.py redis://127.0.0.1:PORT nats://127.0.0.1:PORT        # as the bank says

Nothing but the two URLs is different. $SHOP_ASKS and $SHOP_IS_ANSWERED name the schemes, here as `buy.py` sets them.
"""

from __future__ import annotations

import os
from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

there, back = os.environ.get("SHOP_ASKS", "redis"), os.environ.get("SHOP_IS_ANSWERED", "nats")
app = Hipq("any_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to=os.environ["BANK_URL"] if there == "http" else f"{there}://payments-out",
    answers=f"{back}://payments-in",
    key="reference",
    answer_id="event",
    error=lambda message: message.json["status"] == "busy",
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
