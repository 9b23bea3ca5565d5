"""examples/payment: every order is settled once, whatever the provider does."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from tests.examples.running import events, jobs, run

EXPECTED = {
    "visa": ("paid", "paid", 1),
    "early": ("paid", "paid", 1),
    "declined": ("declined", "none", 0),
    "refused": ("declined", "declined", 0),
    "busy": ("paid", "paid", 1),
    "broken": ("paid", "paid", 1),
    "silent": ("paid", "paid", 1),
    "twice": ("paid", "paid", 1),
    "pending": ("cancelled", "voided", 0),
    "crossed": ("cancelled", "refunded", 1),
}
"""By card: what the shop says, what the provider says, and how often it took money."""


def table(printed: str) -> dict[str, tuple[str, str, int]]:
    rows = re.findall(r"^ *\d+  (\w+) +(\w+) +(\w+) +(\d+) +\d+ +\d+$", printed, flags=re.MULTILINE)
    return {card: (shop, provider, int(charged)) for card, shop, provider, charged in rows}


def test_every_order_is_settled_once_and_it_can_be_run_again(tmp_path: Path) -> None:
    printed, database = run("payment/shop.py", tmp_path), tmp_path / "payments.db"
    the_shop_and_the_provider_agree_on_every_order(printed, database)
    every_job_ended_as_its_order_did(database)
    each_paid_order_has_one_receipt(database)
    forged_callbacks_were_refused_and_doubled_ones_known(printed)
    assert table(run("payment/shop.py", tmp_path)) == EXPECTED


def the_shop_and_the_provider_agree_on_every_order(printed: str, database: Path) -> None:
    assert table(printed) == EXPECTED
    with closing(sqlite3.connect(database)) as connection:
        orders = dict(connection.execute("SELECT card, status FROM orders"))
    assert orders == {card: status for card, (status, _, _) in EXPECTED.items()}  # and none that was rolled back


def every_job_ended_as_its_order_did(database: Path) -> None:
    payments = jobs(database, "shop", "payments")
    charges = {job.data["card"]: job for job in payments if job.type == "charge"}
    assert len([job for job in payments if job.type == "charge"]) == len(EXPECTED)
    for card, (status, _, _) in EXPECTED.items():
        code = {"paid": "ok", "cancelled": "cancelled"}.get(status, "failed")
        assert charges[card].code == code, charges[card].history
    assert charges["busy"].attempt >= 3
    assert charges["silent"].attempt >= 2
    assert events(charges["silent"]).count("cancelling") >= 1  # its time-out: nothing was voided, see the books
    assert "cancel handler ended" in events(charges["pending"])
    assert "cancel handler failed" in events(charges["crossed"])
    (refund,) = [job for job in payments if job.type == "refund"]
    assert (refund.key, refund.code) == (charges["crossed"].key, "ok")


def each_paid_order_has_one_receipt(database: Path) -> None:
    receipts = jobs(database, "shop", "mails")
    paid = [job.key for job in jobs(database, "shop", "payments") if job.type == "charge" and job.code == "ok"]
    assert Counter(job.key for job in receipts) == Counter(paid)
    assert {job.code for job in receipts} == {"ok"}


def forged_callbacks_were_refused_and_doubled_ones_known(printed: str) -> None:
    told = re.findall(r"(\d+) (\w+)", printed[printed.index("callbacks:") :])
    became = {word: int(count) for count, word in told}
    assert became["401"] == 1
    assert became["duplicate"] >= 1
    assert became["late"] >= 1
