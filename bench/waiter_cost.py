"""`python -m bench.waiter_cost`: what a million far-out messages cost, from the calls that some hundred of them make.

Writes docs/waiter-cost.md with `--page`. The calls are counted between the waiter and moto's server, their sizes are
those of what was really sent; how DynamoDB and SQS turn sizes into units are the rules of their pages, written below.
Prices are options: they change, and are not the same everywhere.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

from tests.brokers.aws import aws_endpoint
from tests.waiter.cloud import HOUR, Calls, Clock, Cloud

from hipq.waiter.limits import item_size, message_size
from hipq.waiter.tables import Projection

MILLION: Final = 1_000_000
JOBS: Final = 100
SIZES: Final = (200, 1_000, 10_000)
PER_ITEM: Final = 100
"""Bytes that DynamoDB adds to each item, and to each entry of an index, when it counts what is stored."""
KEYS: Final = ("scheduler", "job_id", "perform_at")


@dataclass
class Prices:
    """Dollars. On-demand tables, us-east-1, as published in 2025."""

    write: float = 0.625
    read: float = 0.125
    sqs: float = 0.40
    storage: float = 0.25
    looked_up: str = "2025, us-east-1"


@dataclass
class Counted:
    """What some messages took, from `send` to SQS."""

    jobs: int
    calls: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0
    sqs_requests: float = 0.0
    stored: int = 0
    """Bytes, with the index."""

    def per_million(self, value: float) -> float:
        return value * MILLION / self.jobs


def count(cloud: Cloud, size: int, projection: Projection, jobs: int = JOBS) -> Counted:
    """Send so many messages of this size an hour ahead, then look once when they are due."""
    queue, clock = cloud.queue(), Clock()
    waiter = cloud.waiter(queue, clock=clock)
    waiter.tables.create(queue, projection)
    waiter.destinations.of(queue)
    calls = Calls().watch(waiter)
    for n in range(jobs):
        waiter.send(queue, f"{n:09}" + "x" * (size - 9), delay=HOUR)
    clock.ahead = HOUR
    polled = waiter.poll()
    assert polled.sent == jobs, polled
    return added_up(calls, projection, jobs)


def idle(cloud: Cloud) -> Counted:
    """One look at a table in which nothing is due."""
    _, waiter = cloud.with_table()
    calls = Calls().watch(waiter)
    waiter.poll()
    return added_up(calls, "ALL", 1)


def added_up(calls: Calls, projection: Projection, jobs: int) -> Counted:
    found = Counted(jobs, calls.counts())
    items: dict[str, dict[str, Any]] = {}
    for call in calls.made:
        params = call.params
        match call.operation:
            case "PutItem":
                item = items[params["Item"]["job_id"]["S"]] = params["Item"]
                found.write_units += kilobytes(item) + kilobytes(entry(item, projection))
                found.stored += 2 * PER_ITEM + item_size(item) + item_size(entry(item, projection))
            case "UpdateItem":  # the claim: the index is written if it has a copy of what changes
                item, values = items[params["Key"]["job_id"]["S"]], params["ExpressionAttributeValues"]
                item.update(claimed_by=values[":me"], claimed_until=values[":until"])
                found.write_units += kilobytes(item) * (2 if projection == "ALL" else 1)
            case "DeleteItem":
                item = items[params["Key"]["job_id"]["S"]]
                found.write_units += kilobytes(item) + kilobytes(entry(item, projection))
            case "SendMessageBatch":
                total = sum(message_size(one["MessageBody"], {}) for one in params["Entries"])
                found.sqs_requests += math.ceil(total / 65_536)
    found.read_units = sum(read_units(answer) for answer in calls.answers)
    return found


def entry(item: dict[str, Any], projection: Projection) -> dict[str, Any]:
    """What the index keeps of it."""
    return item if projection == "ALL" else {name: item[name] for name in KEYS}


def kilobytes(item: dict[str, Any]) -> int:
    """Write units: one for each KB begun."""
    return math.ceil(item_size(item) / 1024)


def read_units(answer: dict[str, Any]) -> float:
    """Half of one for each 4 KB begun of a page, since the read need not be consistent; by key, of each item."""
    if "Items" in answer:
        return 0.5 * max(1, math.ceil(sum(map(item_size, answer["Items"])) / 4096))
    each = [item for items in answer.get("Responses", {}).values() for item in items]
    return sum(0.5 * math.ceil(item_size(item) / 4096) for item in each)


def dollars(found: Counted, prices: Prices) -> float:
    return (
        found.per_million(found.write_units) / MILLION * prices.write
        + found.per_million(found.read_units) / MILLION * prices.read
        + found.per_million(found.sqs_requests) / MILLION * prices.sqs
    )


def page(results: dict[tuple[int, Projection], Counted], nothing: Counted, prices: Prices, template: str) -> str:
    rows, calls = [], []
    for (size, projection), one in results.items():
        stored = one.per_million(one.stored) / 1024**3
        rows.append(
            f"| {size:,} bytes, index {projection} | {one.per_million(one.write_units) / MILLION:.2f} "
            f"| {one.per_million(one.read_units) / MILLION:.2f} | {one.per_million(one.sqs_requests) / MILLION:.2f} "
            f"| {dollars(one, prices):.2f} | {stored:.2f} | {stored * prices.storage:.2f} |"
        )
    first = results[SIZES[1], "ALL"]
    for name, many in sorted(first.calls.items(), key=lambda pair: -pair[1]):
        if name not in ("DescribeTable", "Query"):
            calls.append(f"| `{name}` | {first.per_million(many):,.0f} |")
    looks = 30 * 24 * 12
    return template.format(
        rows="\n".join(rows),
        calls="\n".join(calls),
        idle_calls=", ".join(f"{many} `{name}`" for name, many in sorted(nothing.calls.items())),
        idle_units=f"{nothing.read_units:g}",
        looks=f"{looks:,}",
        idle_dollars=f"{looks * nothing.read_units / MILLION * prices.read:.4f}",
        noted_dollars=f"{looks / MILLION * prices.write:.4f}",
        jobs=first.jobs,
        prices=prices,
        today=date.today().isoformat(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.waiter_cost", description=__doc__)
    parser.add_argument("--page", type=Path, metavar="FILE", help="write it there, instead of printing it")
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many of each size are sent")
    for name in ("write", "read", "sqs"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Prices, name), help="dollars per million")
    parser.add_argument("--storage", type=float, default=Prices.storage, help="dollars per GB and month")
    parser.add_argument("--looked-up", default=Prices.looked_up, help="when and where these prices were found")
    options = parser.parse_args()
    prices = Prices(options.write, options.read, options.sqs, options.storage, options.looked_up)
    cloud, began = Cloud(aws_endpoint()), time.monotonic()
    results: dict[tuple[int, Projection], Counted] = {}
    for size in SIZES:
        results[size, "ALL"] = count(cloud, size, "ALL", options.jobs)
        results[size, "KEYS_ONLY"] = count(cloud, size, "KEYS_ONLY", options.jobs)
    text = page(results, idle(cloud), prices, TEMPLATE.read_text())
    if options.page:
        options.page.write_text(text)
        print(f"{options.page}: written in {time.monotonic() - began:.0f} s")
    else:
        print(text)


TEMPLATE: Final = Path(__file__).with_name("waiter_cost.md")

if __name__ == "__main__":
    main()
