"""A shop that is paid through a payment provider, who calls back.

    python examples/payment/shop.py

starts a pretend provider in a second process, takes ten orders, one with each kind of trouble that providers make (see
`provider.py`), cancels two of them, and prints what became of them. It ends by itself after a few seconds, when the
shop's orders and the provider's books agree: everything paid once, nothing kept for what was cancelled.

What it shows:
- An order and its payment job are committed together: `charge.enqueue(..., conn=)` in the shop's own transaction.
- The order's key goes to the provider as the reference, so a request that is sent twice takes money once.
- 5xx answers, lost connections and silence are retried with growing pauses; a declined card is `Failed` at once.
- Whoever asks a second time looks the payment up first: the first request may have arrived.
- Callbacks are signed, and checked before anything else. Early, repeated, late and forged ones do no harm.
- A cancelled order's payment is voided; if it was paid at that very moment, it is refunded.

The database, `payments.db`, is in the current folder, or where `--folder` says; look at it afterwards with
`hipq job list --db sqlite:///payments.db`.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE
from threading import Thread
from typing import Any

from hipq import Answer, Conflict, Failed, Hipq, HipqError, Job, Ok, Progress, Wait, backoff

DATABASE = "payments.db"
PATIENCE = 1.0
"""Seconds until a payment nobody has called back about is looked up. In a real shop: some minutes."""

app = Hipq("shop", f"sqlite:///{DATABASE}")
payments = app.queue("payments", throttle_limit=50)  # so many payments under way at a time
mails = app.queue("mails")


@dataclass
class Charge:
    order: int
    amount: int
    card: str


# -- the jobs ---------------------------------------------------------------------------------------------------------
@payments.job(run_timeout=30, retry=backoff(attempts=8, base=0.2, cap=600, on=(OSError, HTTPException)))
def charge(job: Job[Charge]) -> Ok | Failed | Wait:
    """Ask for the money. It may run again after an error, a time-out or a crash, and must not take money twice."""
    if job.attempt > 1 and (known := provider("GET", f"/payments/{job.key}", none_if=404)):
        return settled(job, known["status"]) or Wait(timeout=PATIENCE)  # it is on its way: asking again helps nobody
    try:
        request = {"reference": job.key, "amount": job.data.amount, "card": job.data.card}
        provider("POST", "/payments", {**request, "callback": os.environ["SHOP_CALLBACK"]})
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            raise  # it may work later
        set_status(job.data.order, "declined")
        raise Failed(f"the provider says no: {error.code} {error.reason}") from None
    return Wait(timeout=PATIENCE)


@charge.answered
def called_back(job: Job[Charge], answer: Answer) -> Ok | Failed | Progress:
    return settled(job, answer.data["status"]) or Progress()


@charge.cancelled
def void(job: Job[Charge]) -> None:
    """Called when a waiting payment is cancelled or has timed out; one that has is looked up, not voided. If it raises,
    because the payment cannot be voided any more, that is on record, and the order is cancelled all the same."""
    if job.history[-1]["kind"] == "cancelled":
        provider("POST", f"/payments/{job.key}/void")


@charge.on_late
def too_late(job: Job[Charge], answer: Answer) -> None:
    """Paid after all, although the order was cancelled: the money goes back, once, however often this is told."""
    if answer.data["status"] == "paid" and status_of(job.data.order) == "cancelled":
        refund.enqueue({"reference": job.key}, key=job.key, on_duplicate="return")


@payments.job(critical=True, retry=backoff(attempts=20, base=0.2, cap=3600))
def refund(job: Job[dict[str, str]]) -> None:
    provider("POST", f"/payments/{job.data['reference']}/refund")


@mails.job
def receipt(job: Job[dict[str, int]]) -> str:
    return f"receipt for order {job.data['order']} mailed"


def settled(job: Job[Charge], status: str) -> Ok | Failed | None:
    """What the provider's word means for the order; None if it is not the last."""
    if status == "paid":
        set_status(job.data.order, "paid")
        if status_of(job.data.order) == "cancelled":  # a moment ago
            job.enqueue(refund, {"reference": job.key}, key=job.key)
            return Failed("paid, and the order was cancelled")
        job.enqueue(receipt, {"order": job.data.order}, key=job.key)  # saved with the outcome: one receipt, no more
        return Ok({"paid": job.data.amount})
    if status in ("declined", "voided"):
        set_status(job.data.order, "declined")
        return Failed(f"the payment was {status}")
    return None


def provider(method: str, path: str, body: object = None, *, none_if: int = 0) -> Any:
    """One request to the provider; its answer as JSON. Raises an OSError for anything but 2xx."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["SHOP_PROVIDER"] + path, data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code == none_if:
            return None
        raise


# -- the shop's own data ----------------------------------------------------------------------------------------------
@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """A transaction of the shop: committed at the end of the block, undone if it raises."""
    with closing(sqlite3.connect(DATABASE, timeout=30)) as connection, connection:
        yield connection


def place_order(amount: int, card: str, in_stock: bool = True) -> int:
    """Take an order: the order is there if its payment job is, and the other way round."""
    with database() as connection:
        order = connection.execute("INSERT INTO orders (amount, card) VALUES (?, ?)", (amount, card)).lastrowid
        assert order is not None
        job = charge.enqueue(Charge(order, amount, card), key=f"order-{order}", conn=connection)
        connection.execute("UPDATE orders SET job = ? WHERE number = ?", (job, order))
        if not in_stock:
            raise LookupError(f"order {order}: nothing in stock")  # neither an order nor a job is left
    return order


def cancel_order(order: int) -> None:
    """Cancel the order and its payment. One that waits is voided. If its request is being sent at this very moment,
    nobody voids it: its callback comes too late then, and the money goes back."""
    set_status(order, "cancelled")
    with suppress(Conflict):  # the payment is settled; if it was paid after the line above, it goes back
        app.cancel(job_of(order).id, "the customer changed their mind")


def set_status(order: int, status: str) -> None:
    with database() as connection:
        connection.execute("UPDATE orders SET status = ? WHERE number = ? AND status = 'open'", (status, order))


def status_of(order: int) -> str:
    with database() as connection:
        return str(connection.execute("SELECT status FROM orders WHERE number = ?", (order,)).fetchone()[0])


def asked_for(order: int) -> bool:
    return job_of(order).phase == "waiting"


def job_of(order: int) -> Job[Any]:
    with database() as connection:
        return app.job(connection.execute("SELECT job FROM orders WHERE number = ?", (order,)).fetchone()[0])


# -- callbacks --------------------------------------------------------------------------------------------------------
class Callbacks(BaseHTTPRequestHandler):
    """Where the provider calls back. It is told 2xx only when the answer is stored; else it will call again."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mine = hmac.new(os.environ["PAYMENT_SECRET"].encode(), body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(mine, self.headers.get("X-Signature", "")):
            self._reply(401, {"error": "bad signature"})
            return
        told = json.loads(body)
        try:
            became = charge.answer(told["reference"], told, answer_id=told["event"])
        except HipqError as error:
            self._reply(503, {"error": str(error)})
            return
        self._reply(200, {"became": became})

    def _reply(self, status: int, body: dict[str, str]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


# -- running it -------------------------------------------------------------------------------------------------------
@contextmanager
def everything(delay: float) -> Iterator[None]:
    """The provider, an engine, and the place for callbacks; all of them end with the block."""
    os.environ["PAYMENT_SECRET"] = secrets.token_hex()
    command = [sys.executable, str(Path(__file__).with_name("provider.py")), "--while-open", "--delay", str(delay)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True) as pretended:
        assert pretended.stdin is not None
        assert pretended.stdout is not None
        os.environ["SHOP_PROVIDER"] = f"http://127.0.0.1:{pretended.stdout.readline().strip()}"
        engine = app.engine(concurrency=10)  # before the threads: it forks
        ThreadingHTTPServer.request_queue_size = 100  # of the 5 it has, a burst of connections resets some
        callbacks = ThreadingHTTPServer(("127.0.0.1", 0), Callbacks)
        os.environ["SHOP_CALLBACK"] = f"http://127.0.0.1:{callbacks.server_port}/payments"
        threads = [Thread(target=callbacks.serve_forever), Thread(target=engine.run)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            engine.stop()
            callbacks.shutdown()
            for thread in threads:
                thread.join()
            engine.executor.close()
            callbacks.server_close()
            pretended.stdin.close()
            app.close()


AGREE = {"paid": {"paid"}, "declined": {"declined", "none"}, "cancelled": {"voided", "refunded"}}
"""What the provider's books must say of an order, by what the shop says of it."""


def report(orders: list[int]) -> list[dict[str, Any]]:
    """Each order beside what the provider's books say."""
    books = provider("GET", "/books")
    rows = []
    for order in orders:
        with database() as connection:
            row = connection.execute("SELECT card, status, job FROM orders WHERE number = ?", (order,)).fetchone()
        card, status, job = row[0], row[1], app.job(row[2])
        payment = books["payments"].get(job.key, {"status": "none", "charged": 0})
        rows.append({
            "order": order, "card": card, "status": status, "provider": payment["status"],
            "charged": payment["charged"], "asked": books["asked"][job.key], "attempts": job.attempt,
            "agrees": job.state == "final" and payment["status"] in AGREE.get(status, ()) and payment["charged"] <= 1,
        })  # fmt: skip
    return rows


def until(happened: Callable[[], bool], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > limit:
            raise TimeoutError(f"not settled after {seconds:g} s: see `hipq job list --db sqlite:///{DATABASE}`")
        time.sleep(0.05)


def trade() -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Ten customers; what became of their orders, and of the callbacks."""
    cards = ("visa", "early", "declined", "refused", "busy", "broken", "silent", "twice", "pending", "crossed")
    orders = [place_order(25, card) for card in cards]
    for order in orders[-2:]:
        until(partial(asked_for, order))
        cancel_order(order)
    with suppress(LookupError):
        place_order(99, "visa", in_stock=False)
    until(lambda: all(row["agrees"] for row in report(orders)))
    until(lambda: all(job.state == "final" for job in app.jobs("mails", limit=1000)))
    return report(orders), provider("GET", "/books")["callbacks"]


def main() -> int:
    parser = argparse.ArgumentParser(description="A shop that is paid through a provider who calls back.")
    parser.add_argument("--folder", type=Path, default=Path(), help="where payments.db goes")
    parser.add_argument("--delay", type=float, default=0.2, help="seconds the pretend provider takes")
    options = parser.parse_args()
    os.chdir(options.folder)
    app.migrate()  # the tables, once; not inside a transaction of the shop
    with database() as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY AUTOINCREMENT, amount INTEGER, card TEXT, "
            "status TEXT DEFAULT 'open', job INTEGER DEFAULT 0)"
        )
    with everything(options.delay):
        rows, callbacks = trade()
    print("order  card       shop       provider   charged  asked  attempts")
    for row in rows:
        print("{order:>5}  {card:9}  {status:9}  {provider:9}  {charged:>7}  {asked:>5}  {attempts:>8}".format(**row))
    print("callbacks:", ", ".join(f"{count} {became}" for became, count in sorted(callbacks.items())))
    print("the shop's orders and the provider's books agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
