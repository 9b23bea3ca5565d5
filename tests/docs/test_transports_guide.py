"""docs/transports.md: its options, their defaults and its extras are those of the code."""

from __future__ import annotations

import re
import tomllib

import pytest

from hipq import Invalid, transports
from hipq.transports import kafka, mqtt, nats, redis
from hipq.transports.address import EXAMPLES, address
from tests.docs.test_readme import ROOT

TEXT = (ROOT / "docs/transports.md").read_text()
NAMES = {"Kafka": "kafka", "SQS": "sqs", "Kinesis": "kinesis", "NATS": "nats", "RabbitMQ": "amqp", "Redis": "redis",
         "MQTT": "mqtt", "MQTT 5": "mqtt", "HTTP": "http"}  # fmt: skip


def options() -> dict[str, dict[str, str]]:
    """By scheme the options that the table has, and what is usual."""
    found: dict[str, dict[str, str]] = {scheme: {} for scheme in NAMES.values()}
    whose: list[str] = []
    table = TEXT[TEXT.index("| | option | default | |") : TEXT.index("### How to set up the servers")]
    for who, option, usual in re.findall(r"^\| ([\w, ]*) ?\| `?([\w. ]+)`? \| ([^|]*) ?\|", table, flags=re.MULTILINE):
        if option == "option":
            continue
        whose = [NAMES[one] for one in who.strip().split(", ")] if who.strip() else whose
        for scheme in whose:
            found[scheme][option] = usual.strip()
    return found


@pytest.mark.parametrize("scheme", sorted({*NAMES.values()} - {"http", "kafka"}))
def test_it_has_all_options_and_no_others(scheme: str) -> None:
    with pytest.raises(Invalid) as refused:
        transports.check(address(f"{scheme}://payments-in?nonsense=1"))
    there = str(refused.value).rpartition("there are ")[2].split(", ")
    assert {*options()[scheme], "group"} == set(there)


def test_their_defaults_are_the_codes() -> None:
    told = options()
    assert told["kafka"]["session.timeout.ms"] == kafka._CONSUMER["session.timeout.ms"]
    assert told["kafka"]["auto.offset.reset"] == kafka._CONSUMER["auto.offset.reset"]
    assert int(told["nats"]["ack_wait"]) == nats.ACK_WAIT
    assert int(told["redis"]["idle"]) == redis.IDLE
    assert int(told["mqtt"]["expiry"]) == mqtt.WEEK


def test_its_extras_are_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = dict(re.findall(r"^\| ([\w ]+) \| .* \| `hipq\[(\w+)\]` \|$", TEXT, flags=re.MULTILINE))
    assert {NAMES[name]: extra for name, extra in rows.items()} == {one: one for one in set(NAMES.values())}
    assert set(rows.values()) <= set(extras)
    assert {f"{scheme}://" for scheme in EXAMPLES} <= set(re.findall(r"[a-z]+://", TEXT))
