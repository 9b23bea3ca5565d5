"""Tables: found, checked, made."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hipq.errors import Invalid, TransportUnavailable, WrongTable
from hipq.waiter import Waiter
from hipq.waiter.item import INDEX
from tests.brokers.aws import FaultyAws
from tests.waiter.cloud import Cloud


def make(cloud: Cloud, name: str, keys: list[str], index: list[str] | None, index_name: str = INDEX) -> None:
    """Keys like "scheduler:S"."""
    every = dict(one.split(":") for one in [*keys, *(index or [])])
    local = [
        {
            "IndexName": index_name,
            "KeySchema": _schema(index or []),
            "Projection": {"ProjectionType": "ALL"},
        }
    ]
    cloud.dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": one, "AttributeType": kind} for one, kind in every.items()],
        KeySchema=_schema(keys),
        **({"LocalSecondaryIndexes": local} if index else {}),
    )


def _schema(keys: list[str]) -> list[dict[str, Any]]:
    return [
        {"AttributeName": one.split(":")[0], "KeyType": kind}
        for one, kind in zip(keys, ["HASH", "RANGE"], strict=False)
    ]


@pytest.mark.parametrize(
    ("keys", "index", "index_name", "wrong"),
    [
        (["scheduler:S", "job_id:S"], ["scheduler:S", "perform_at:N"], INDEX, []),
        (["scheduler:S", "job_id:S"], None, INDEX, [f"an index named {INDEX}, and it has none"]),
        (["scheduler:S", "job_id:S"], ["scheduler:S", "perform_at:N"], "by-time", [f"{INDEX}, and it has by-time"]),
        (["scheduler:S", "job_id:N"], ["scheduler:S", "perform_at:N"], INDEX, ["job_id must be of the type S"]),
        (["scheduler:S", "job_id:S"], ["scheduler:S", "perform_at:S"], INDEX, ["perform_at must be of the type N"]),
        (["scheduler:S", "job_id:S"], ["scheduler:S", "due:N"], INDEX, ["RANGE key must be perform_at (N), not due"]),
        (["scheduler:S"], None, INDEX, ["RANGE key must be job_id (S), and there is none", "it has none"]),
        (
            ["id:S", "n:S"], ["id:S", "t:N"], INDEX,
            ["its HASH key must be scheduler (S), not id", "its RANGE key must be job_id (S), not n",
             f"{INDEX}'s HASH key must be scheduler (S), not id", "RANGE key must be perform_at (N), not t"],
        ),
    ],
)  # fmt: skip
def test_check_says_all_that_is_wrong(
    cloud: Cloud, keys: list[str], index: list[str] | None, index_name: str, wrong: list[str]
) -> None:
    name = cloud.name()
    make(cloud, name, keys, index, index_name)
    waiter = cloud.waiter(name)
    said = waiter.tables.check(name)
    assert len(said) == len(wrong)
    for sentence, expected in zip(said, wrong, strict=True):
        assert expected in sentence
    assert waiter.tables.find() == ({} if wrong else {name: name})
    if wrong:
        with pytest.raises(WrongTable) as error:
            waiter.tables.create(name)
        assert all(one in str(error.value) for one in said)
    else:
        assert waiter.tables.create(name) == name  # it is there, and fine


def test_a_missing_table_is_what_is_wrong(cloud: Cloud) -> None:
    name = cloud.name()
    (said,) = cloud.waiter(name).tables.check(name)
    assert f"hipq waiter create-table {name}" in said


def test_what_create_makes_is_as_the_seed_says(cloud: Cloud) -> None:
    name = cloud.name()
    waiter = cloud.waiter(name)
    assert waiter.tables.create(name) == name
    assert waiter.tables.check(name) == []
    table = cloud.dynamodb.describe_table(TableName=name)["Table"]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    (index,) = table["LocalSecondaryIndexes"]
    assert (index["IndexName"], index["Projection"]["ProjectionType"]) == ("scheduler-perform_at-index", "ALL")
    assert waiter.tables.find() == {name: name}


def test_find_sees_what_comes_and_goes(cloud: Cloud) -> None:
    one, two = cloud.name(), cloud.name()
    waiter, other = cloud.waiter(one, two), cloud.waiter(one)
    assert waiter.tables.find() == {}
    other.tables.create(one)
    assert waiter.tables.find() == {one: one}
    cloud.dynamodb.delete_table(TableName=one)
    assert waiter.tables.find() == {}


def test_who_may_not_look_is_told_so(cloud: Cloud) -> None:
    name = cloud.name()
    with FaultyAws(cloud.endpoint) as aws:
        aws.fail("DescribeTable", "AccessDeniedException")
        with pytest.raises(TransportUnavailable, match=f"table {name}: these AWS credentials may not"):
            cloud.waiter(name, endpoint=aws.url).tables.check(name)


@pytest.mark.parametrize(
    "bad",
    [
        {"queues": "mailers"}, {"queues": ["a b"]}, {"queues": [5]}, {"table": "a b"}, {"table": "ab"},
        {"delay": 0}, {"delay": -5}, {"delay": float("nan")}, {"delay": "5"}, {"scheduler": ""}, {"scheduler": 5},
        {"threads": 0}, {"threads": 1.5},
    ],
)  # fmt: skip
def test_a_waiter_that_cannot_be(bad: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        Waiter(**bad)


def test_a_queue_whose_name_no_table_can_have(cloud: Cloud) -> None:
    with pytest.raises(Invalid, match="one table for all queues"):
        cloud.waiter("ab").tables.create("ab")
    assert cloud.waiter("ab", table=cloud.name()).tables.create("ab")


def test_without_a_region_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    for ask in (Waiter(["mailers"]).tables.find, Waiter(["mailers"]).poll):
        with pytest.raises(Invalid, match="region"):
            ask()


def test_boto3_is_imported_when_it_is_needed_and_a_missing_one_says_what_to_install() -> None:
    """In a process of its own: other tests have it imported already."""
    program = """
import sys
from hipq.waiter import Waiter
waiter = Waiter(["mailers"])
assert "boto3" not in sys.modules and "botocore" not in sys.modules
sys.modules.update(boto3=None, botocore=None)
for ask in (waiter.tables.find, waiter.poll, lambda: waiter.send("mailers", "x"), lambda: waiter.list("mailers")):
    try:
        ask()
    except Exception as error:
        print(type(error).__name__, error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "Invalid the waiter needs boto3: pip install 'hipq[waiter]'\n" * 4
