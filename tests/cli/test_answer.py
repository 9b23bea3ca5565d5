"""`hipq answer`: with the code and without it, on both stores."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hipq import Hipq
from tests.cli.conftest import HipqCommand, Worker, waiting


def test_an_answer_comes_and_an_engine_with_the_code_looks_at_it(
    hipq: HipqCommand, program: Hipq, where: list[str]
) -> None:
    job_id = waiting(program, "orders", "charge", "order-17")
    ran = hipq("answer", *where, "orders", "charge", "order-17", '{"status": "paid"}')
    assert (ran.status, ran.out) == (0, "matched\n")
    assert program.job(job_id).phase == "answered"
    program.run(until_empty=True)
    assert program.job(job_id).result == {"settled": {"status": "paid"}}


def test_without_an_answer_handler_whoever_brings_it_ends_the_job(hipq: HipqCommand, program: Hipq, url: str) -> None:
    first, second = (waiting(program, "mails", "mail", key) for key in "ab")
    assert hipq("answer", "shop:app", "mails", "mail", "a", "[1]", "--json").json == {
        "outcome": "matched", "queue": "mails", "type": "mail", "key": "a", "tenant": ""
    }  # fmt: skip
    assert (program.job(first).code, program.job(first).result) == ("ok", [1])
    assert hipq("answer", "--db", url, "mails", "mail", "b", "[2]").out == "matched\n"
    assert (program.job(second).code, program.job(second).result) == ("ok", [2])  # the job says so itself


def test_every_word_is_a_success(hipq: HipqCommand, program: Hipq, where: list[str]) -> None:
    def brought(*arguments: str) -> str:
        ran = hipq("answer", *where, "orders", "charge", *arguments)
        assert ran.status == 0
        return ran.out.strip()

    assert brought("order-17", "1", "--id", "a") == "buffered"
    assert brought("order-17", "2", "--id", "a") == "duplicate"
    (orders, _) = program.queues
    job_id = orders.enqueue("charge", key="order-17")
    program.run(until_empty=True)
    assert program.job(job_id).result == {"settled": 1}
    assert brought("order-17", "3") == "conflict"
    assert brought("order-17", "1") == "duplicate"
    cancelled = waiting(program, "orders", "charge", "order-18")
    program.cancel(cancelled)
    assert brought("order-18") == "late"


def test_the_options_of_answer_reach_the_inbox(hipq: HipqCommand, where: list[str], folder: Path, url: str) -> None:
    hipq("migrate", "--db", url)
    hipq("enqueue", "shop:app", "mails", "mail")  # so that the database knows the queue
    (folder / "answer.json").write_text('{"why": "no money"}')
    options = ("--data-file", "answer.json", "--id", "evt 1", "--error", "--attempt", "3")
    assert hipq("answer", *where, "mails", "mail", "k:1", *options).out == "buffered\n"
    assert hipq("answer", *where, "mails", "mail", "k:1", "--data-file", "-", stdin=b'"two"').out == "buffered\n"
    assert hipq("answer", *where, "mails", "mail", "k:1").out == "buffered\n"
    first, second, third = hipq("answers", "list", *where, "--json").json
    assert {name: first[name] for name in ("app", "queue", "type", "key", "id", "error", "attempt", "data")} == {
        "app": "shop", "queue": "mails", "type": "mail", "key": "k:1", "id": "evt 1", "error": True, "attempt": 3,
        "data": {"why": "no money"},
    }  # fmt: skip
    assert (second["data"], second["id"], second["attempt"], second["error"]) == ("two", "", None, False)
    assert third["data"] is None


def test_an_answer_that_says_the_work_failed(hipq: HipqCommand, program: Hipq, where: list[str]) -> None:
    job_id = waiting(program, "mails", "mail", "k")
    assert hipq("answer", *where, "mails", "mail", "k", '"no such address"', "--error").out == "matched\n"
    program.run(until_empty=True)
    assert (program.job(job_id).code, str(program.job(job_id).fault)) == ("error", "answer: no such address")


def test_a_queue_of_several_instances_is_named_with_its_own(hipq: HipqCommand, program: Hipq, url: str) -> None:
    job_id = waiting(program, "mails", "mail", "k")
    farm = Hipq("farm", url)
    farm.queue("mails").enqueue("mail", key="k", delay=60)
    farm.close()
    ran = hipq("answer", "--db", url, "mails", "mail", "k", "1")
    assert ran.status == 2
    assert "say" in ran.complaint
    assert {"shop.mails", "farm.mails"} <= set(ran.complaint.split())
    assert hipq("answers", "list", "--db", url, "--json").json == []
    assert hipq("answer", "--db", url, "shop.mails", "mail", "k", "1", "--json").json["queue"] == "mails"
    assert program.job(job_id).result == 1


def test_a_store_that_is_away_is_exit_1(hipq: HipqCommand) -> None:
    url = "postgresql://ann:s3cret@127.0.0.1:1/shop"
    for arguments in (("answer", "orders", "charge", "k"), ("answers", "list"), ("answers", "replay", "1")):
        ran = hipq(*arguments, "--db", url)
        assert ran.status == 1
        assert ran.complaint
        assert "s3cret" not in ran.err


def test_answers_beside_a_worker(hipq: HipqCommand, worker: Callable[..., Worker], folder: Path) -> None:
    """The whole way, as a user goes it."""
    assert hipq("answer", "shop:app", "orders", "charge", "order-17", '"early"').out == "buffered\n"
    early = hipq("enqueue", "shop:app", "orders", "charge", "--key", "order-17").out.strip()
    waits = hipq("enqueue", "shop:app", "orders", "charge", "--key", "order-18").out.strip()
    assert worker("--until-empty").ended() == 0
    assert hipq("job", "show", "shop:app", early, "--json").json["result"] == {"settled": "early"}
    assert hipq("answer", "--db", "sqlite:///shop.db", "orders", "charge", "order-18", '"late"').out == "matched\n"
    assert worker("--until-empty").ended() == 0
    assert hipq("job", "show", "shop:app", waits, "--json").json["result"] == {"settled": "late"}
    with closing(sqlite3.connect(folder / "shop.db")) as conn:
        (states,) = conn.execute("SELECT json_group_array(state) FROM hipq_answers").fetchone()
    assert json.loads(states) == ["settled", "settled"]
