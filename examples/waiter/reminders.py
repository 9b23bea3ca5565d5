"""A shop on SQS that reminds its customers after a month, which is further ahead than SQS can delay.

    python examples/waiter/cloud.py                                # a pretend AWS, which prints the second command
    python examples/waiter/reminders.py http://127.0.0.1:40123

The second takes some customers in: each has a welcome now, a reminder after 30 days and three invoices, one a week. One
customer leaves, one wants to be reminded later. Then a worker starts that lives a month ahead, and handles what is due
by then. It ends by itself after some seconds, when everything has arrived that should: `it adds up`.

What it shows:
- `waiter.send(..., delay=timedelta(days=30))`: up to 15 minutes SQS delays it, what is further out waits in DynamoDB.
- One table for all queues, made by `waiter.tables.create`.
- `waiter.list`, `waiter.cancel` and `waiter.reschedule` for what waits.
- Handlers with `@waiter.handle`: a mail server that is busy the first time, and `retry=` that says when to try again.
- A FIFO queue: each customer's invoices in order, though the first one fails at first.
- `waiter.work`, with one poller beside it; on a command line `hipq waiter work MODULE:APP`.

Afterwards, while the pretend AWS is there (it takes any credentials, but wants some):

    export AWS_ACCESS_KEY_ID=pretended AWS_SECRET_ACCESS_KEY=pretended AWS_DEFAULT_REGION=eu-west-1
    hipq waiter list mails --table scheduled --endpoint-url http://127.0.0.1:40123
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from datetime import timedelta

from hipq import HipqError
from hipq.waiter import Message, Waiter

PRETENDED = {
    "AWS_ACCESS_KEY_ID": "pretended", "AWS_SECRET_ACCESS_KEY": "pretended", "AWS_DEFAULT_REGION": "eu-west-1",
}  # fmt: skip
CUSTOMERS = ("ann", "bob", "eve")
MONTH = timedelta(days=30)
SECONDS = 100.0
"""After which it has failed."""

QUEUES, TABLE = ("mails", "invoices.fifo"), "scheduled"
shop = Waiter(QUEUES, table=TABLE)
worker = Waiter(QUEUES, table=TABLE, delay=1, clock=lambda: time.time() + MONTH.total_seconds() + 3600)
"""The same, a month later: a program of yours needs no such clock, it has the time."""

mailed: dict[str, list[str]] = defaultdict(list)
invoiced: dict[str, list[int]] = defaultdict(list)
failed: set[str] = set()


@worker.handle("mails", retry=lambda message: 0 if message.received < 5 else 60)
def mail(message: Message) -> None:
    order = message.json
    if order["to"] == "bob" and "busy" not in failed:
        failed.add("busy")
        raise ConnectionError("the mail server is busy")  # so it comes again, at once
    mailed[order["to"]].append(order["text"])


@worker.handle("invoices.fifo", retry=1)
def invoice(message: Message) -> None:
    number = int(message.body)
    if message.group == "ann" and number == 1 and "ann" not in failed:
        failed.add("ann")
        raise ConnectionError("the printer is off")  # the other two of hers are given back, and wait for this one
    invoiced[message.group].append(number)


def take_in(name: str) -> str:
    """A new customer; the id of the reminder."""
    shop.send("mails", json.dumps({"to": name, "text": "welcome"}))
    for number in (1, 2, 3):
        shop.send("invoices.fifo", str(number), group=name, delay=timedelta(weeks=number))
    reminder = shop.send("mails", json.dumps({"to": name, "text": "come back"}), delay=MONTH)
    return reminder.id


def all_arrived() -> bool:
    welcomes = all("welcome" in mailed[name] for name in CUSTOMERS)
    return welcomes and "come back" in mailed["bob"] and all(len(invoiced[name]) == 3 for name in CUSTOMERS)


def main(url: str) -> int:
    logging.getLogger("hipq").setLevel("ERROR")  # each failure would be logged with its traceback
    os.environ.update({**PRETENDED, "AWS_ENDPOINT_URL": url})  # no waiter has asked for anything yet
    shop.tables.create("mails")
    reminders = {name: take_in(name) for name in CUSTOMERS}
    for one in shop.list("mails"):
        print(f"waits until {one.at:%Y-%m-%d}: {one.body}")
    shop.cancel("mails", reminders["eve"])
    later = shop.reschedule("mails", reminders["ann"], delay=2 * MONTH)
    print(f"eve left; ann is reminded on {later.at:%Y-%m-%d}", flush=True)

    stop = threading.Event()
    working = threading.Thread(target=worker.work, args=[stop], kwargs={"wait": 2})
    working.start()
    until = time.monotonic() + SECONDS
    while not all_arrived() and working.is_alive() and time.monotonic() < until:
        time.sleep(0.1)
    stop.set()
    working.join()
    for name in CUSTOMERS:
        print(f"{name}: mails {', '.join(sorted(mailed[name]))}; invoices {invoiced[name]}")
    (left,) = shop.list("mails")
    in_order = all(invoiced[name] == [1, 2, 3] for name in CUSTOMERS)
    good = all_arrived() and in_order and left.job_id == reminders["ann"] and "come back" not in mailed["eve"]
    print("it adds up" if good else "it does not add up")
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("say where: python examples/waiter/reminders.py URL, as examples/waiter/cloud.py prints it")
    try:
        sys.exit(main(sys.argv[1]))
    except HipqError as error:
        sys.exit(str(error))
