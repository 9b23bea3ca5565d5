"""examples/transports: every way to a bank and back, each with the two commands that its README names."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hipq import Hipq
from tests.brokers.amqp import OwnRabbit
from tests.examples.running import EXAMPLES, PATIENCE, jobs, run, started
from tests.examples.running import command as words

CARDS = {"visa": "ok", "slow": "ok", "declined": "failed", "busy": "ok", "twice": "ok", "garbled": "ok"}
README = (EXAMPLES / "transports/README.md").read_text()
WAYS = {
    "http": "http_shop", "http kafka": "http_kafka_shop", "kafka": "kafka_shop", "sqs": "sqs_shop",
    "kinesis": "kinesis_shop", "nats": "nats_shop", "redis": "redis_shop", "mqtt": "mqtt_shop",
    "redis nats": "any_shop", "http mqtt": "any_shop",
}  # fmt: skip
"""What the bank is started with, and the file that is the shop's."""


@contextmanager
def bank(folder: Path, *on: str) -> Iterator[list[str]]:
    """The bank, told to end afterwards, so that it ends its server; what it says to type next."""
    with started("transports/bank.py", folder, *on) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.readline()
        if not said:
            why = process.stderr.read()
            if why.startswith("there is no such server here"):
                pytest.skip(f"{' '.join(on)}: {why.strip()}")
            pytest.fail(why)
        try:
            yield shlex.split(said.partition("buy.py ")[2])
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("way", WAYS)
def test_every_order_is_paid_or_declined_and_every_answer_accounted_for(way: str, tmp_path: Path) -> None:
    with bank(tmp_path, *way.split()) as urls:
        printed = run("transports/buy.py", tmp_path, *urls, "--orders", "1")
    check(printed, tmp_path, WAYS[way], by_callback=way == "http")


def test_over_rabbitmq_which_must_be_named(tmp_path: Path) -> None:
    with OwnRabbit() as server, bank(tmp_path, server.url) as urls:
        assert urls == [server.url.replace(":guest@", ":...@")]  # whose password is not printed
        printed = run("transports/buy.py", tmp_path, server.url, "--orders", "1")
    check(printed, tmp_path, "amqp_shop")


def check(printed: str, folder: Path, shop: str, *, by_callback: bool = False) -> None:
    assert printed.endswith("it adds up\n")
    ended = jobs(folder / f"{shop}.db", shop, "orders")
    assert {job.data["card"]: job.code for job in ended} == CARDS
    assert {job.data["card"]: job.attempt for job in ended} == {card: 2 if card == "busy" else 1 for card in CARDS}
    looking = Hipq(shop, f"sqlite:///{folder / shop}.db")
    looking.queue("orders")
    answers = looking.answers.list("orders")
    looking.close()
    assert Counter(one.state for one in answers) == Counter(
        settled=len(CARDS), applied=1, **({} if by_callback else {"unreadable": 1})
    )
    assert [one.key.split("-")[1] for one in answers if one.copies == 2] == ["twice"]


@pytest.mark.parametrize("command", ["bank.py", "buy.py"])
def test_a_server_that_is_not_there_is_said_in_one_sentence(command: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [*words(f"transports/{command}"), "redis://127.0.0.1:1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 1
    said = ran.stderr.splitlines()[-1]  # before it, the record of the listener that is down
    assert re.fullmatch(r"redis://127.0.0.1:1/payments-\w+: nobody listens at 127.0.0.1:1 .*", said)


def test_a_shop_that_is_not_there_is_said_in_one_sentence(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*words("transports/buy.py"), "rediz://127.0.0.1:1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (ran.returncode, ran.stderr) == (1, "there is no shop for 'rediz'; bank.py says what to name here\n")


def test_the_readme_names_every_file() -> None:
    links = set(re.findall(r"\]\((\w+\.py)\)", README))
    assert links == {path.name for path in (EXAMPLES / "transports").glob("*_shop.py")}
    assert all(
        f"`{way}`" in README for way in ("http", "http kafka", "kafka", "sqs", "kinesis", "nats", "amqp", "mqtt")
    )


@pytest.mark.parametrize("file", sorted((EXAMPLES / "transports").glob("*_shop.py")), ids=lambda path: path.stem)
def test_each_file_says_how_to_start_it_and_is_short(file: Path) -> None:
    text = file.read_text()
    assert "    python examples/transports/bank.py " in text
    assert "    python examples/transports/buy.py " in text
    assert len(text.splitlines()) <= 40
