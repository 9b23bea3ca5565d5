"""What the waiter asks of AWS: counted, so that docs/waiter-cost.md stays true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench.waiter_cost import count, idle, read_units

from tests.waiter.cloud import HOUR, Calls, Cloud, message

PAGE = Path(__file__).parents[2] / "docs" / "waiter-cost.md"


def test_a_message_takes_three_writes_and_a_tenth_of_a_batch(cloud: Cloud) -> None:
    counted = count(cloud, 200, "ALL", 20)
    assert counted.calls == {
        "PutItem": 20, "UpdateItem": 20, "DeleteItem": 20, "SendMessageBatch": 2, "Query": 1, "DescribeTable": 1,
    }  # fmt: skip
    assert counted.write_units == 20 * 6  # each in the table and in the index
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith("| 200 bytes, index ALL "))
    assert row.split("|")[2].strip() == f"{counted.per_million(counted.write_units) / 1e6:.2f}"


def test_an_index_of_keys_is_not_written_by_claims(cloud: Cloud) -> None:
    counted = count(cloud, 200, "KEYS_ONLY", 10)
    assert counted.write_units == 10 * 5
    assert counted.calls["BatchGetItem"] == 1


def test_a_look_at_nothing_is_half_a_unit(cloud: Cloud) -> None:
    counted = idle(cloud)
    assert counted.calls == {"DescribeTable": 1, "Query": 1}
    assert counted.read_units == 0.5
    assert re.search(r"`Query` is 0\.5 read units", " ".join(PAGE.read_text().split()))


@pytest.mark.parametrize("far", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_look_costs_the_same_however_much_is_far_out(cloud: Cloud, far: int) -> None:
    queue, waiter = cloud.with_table()
    looks = []
    for more in (0, far):
        cloud.fill(queue, (message(queue, "x" * 100, HOUR + n) for n in range(more)))
        cloud.fill(queue, [message(queue, f"{n}", -1) for n in range(5)])
        calls = Calls().watch(waiter)
        polled = waiter.poll()
        assert polled.sent == 5
        looks.append(
            (
                polled.pages,
                [answer["ScannedCount"] for answer in calls.answers if "ScannedCount" in answer],
                sum(map(read_units, calls.answers)),
                calls.counts(),
            )
        )
        waiter = cloud.waiter(queue)
        waiter.destinations.of(queue)
    (pages, scanned, units, counts), (far_pages, far_scanned, far_units, far_counts) = looks
    assert (pages, scanned, units) == (1, [5], 0.5)
    assert (far_pages, far_scanned, far_units) == (1, [5], 0.5)
    assert counts["Query"] == far_counts["Query"] == 1
    print(f"{far} far-out items: {far_pages} page, {far_scanned[0]} items read, {far_units} read units")
    assert len(cloud.items(queue)) == far
