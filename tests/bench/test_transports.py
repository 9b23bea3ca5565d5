"""How fast answers come in from streams: the page is what its results say, and the measurement measures."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from bench.lines import Broken
from bench.peers import POSTGRES, SQLITE
from bench.transports_page import (
    BARE,
    CLIENT,
    MEMORY,
    NEITHER,
    SETTLING,
    Found,
    Kept,
    load,
    markdown,
    page,
    rows,
    write,
)

from bench import transports, transports_http
from hipq.errors import Invalid
from hipq.job import payload
from hipq.transports import Message

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs/transports.json"


# -- the page -------------------------------------------------------------------------------------------------------
def test_the_page_is_what_its_results_say() -> None:
    assert page(KEPT).read_text() == markdown(load(KEPT)), "run python -m bench.transports_page docs/transports.json"


def test_every_kind_of_stream_was_measured_on_both_stores() -> None:
    kept = load(KEPT)
    for store in (SQLITE, POSTGRES):
        assert [row.found.transport for row in rows(kept, store)] == [*transports.TRANSPORTS[2:]]


@pytest.mark.parametrize("file", [KEPT, page(KEPT)], ids=["json", "page"])
def test_it_says_nothing_of_the_machine_it_was_made_on_that_others_need_not_know(file: Path) -> None:
    assert str(ROOT) not in file.read_text()
    assert not re.search(r"\w+://", file.read_text())


def results() -> Kept:
    found = [
        Found(MEMORY, 100, {SQLITE: 20_000.0, POSTGRES: 10_000.0}, 0.0, 1.0),
        Found("slow", 100, {SQLITE: 8_000.0, POSTGRES: 4_000.0, BARE: 15_000.0}, 0.5, 1.0),
        Found("fast", 100, {SQLITE: 18_000.0, BARE: 200_000.0}, 0.5, 1.0),
    ]
    machine = {"date": "1 May 2026", "minutes": 1.0, "cores": 2, "system": "Linux"}
    return Kept(found, ["amqp: no RabbitMQ server here"], {"hipq": "0.1.0"}, machine)


def test_what_takes_longer_is_what_bounds_it() -> None:
    slow, fast = rows(results(), SQLITE)
    assert (slow.bound, slow.is_met, round(slow.ratio, 2)) == (CLIENT, False, 0.53)
    assert (fast.bound, fast.is_met, round(fast.all)) == (SETTLING, True, 56)
    (slow,) = rows(results(), POSTGRES)
    assert (slow.bound, slow.is_met) == (SETTLING, False)
    assert slow._replace(all=400.0).bound == NEITHER


def test_targets_met_and_missed_and_what_could_not_be_measured_are_all_there(tmp_path: Path) -> None:
    write(tmp_path / "found.json", results())
    assert load(tmp_path / "found.json") == results()
    text = page(tmp_path / "found.json").read_text()
    assert "## SQLite: 1 of 2 at 10,000 answers a second or more" in text
    assert "| slow | 100 | 8,000 | 15,000 | 0.53 | 125 | 67 | client and server |" in text
    assert "- amqp: no RabbitMQ server here" in text


# -- the measurement ------------------------------------------------------------------------------------------------
def test_a_listener_and_a_bare_client_are_measured() -> None:
    found = transports.measured("redis", 300, [SQLITE], rounds=1)
    assert found.rates.keys() == {SQLITE, BARE}
    assert all(50 < rate < 10_000_000 for rate in found.rates.values())


def test_callbacks_that_are_refused_make_it_void() -> None:
    with transports.database(SQLITE, 5) as bench, pytest.MonkeyPatch.context() as patch:
        patch.setattr(transports, "answers", lambda _: [("order-000000", b"{}")] * 2 + [("order-000001", b"[")])
        with pytest.raises(Broken):
            transports.by_callbacks(bench)


def test_all_that_is_posted_arrives() -> None:
    with transports_http.server(transports_http.BARE, os.environ) as port:
        assert transports_http.post_all(port, [("/", b"{}")] * 300) > 0


# -- what was made faster, and must say what the slow way says ------------------------------------------------------
@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"-0", b' { "a" : [1.0, 1E5, true] } ', b'"\\ud83d\\ude00\\u00e9"', '"é"'.encode(),
        b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b'[{"b":{"a":"","a":""}}]', b'{"a":1,"a":"\\u0022\\u0022"}',
        b'{"\\u0022":1,"\\"":2}', b'{"\\"":1}', b"NaN", b"1e400", b"123456789012345678901234567890",
        b"9223372036854775808", b"[9223372036854775807]", b'"\\u0000"', b'"\\ud800"', b'"\xff"', b"\xef\xbb\xbf{}",
        b"{", b"[" * 101 + b"]" * 101, b"[" * 100 + b"]" * 100, b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_message_is_read_as_strictly_as_it_is_quickly(body: bytes) -> None:
    message = Message(body, "1")
    assert _said(lambda: message.json) == _said(lambda: payload.parse(body, "the message") if body else None)
    if message.written:
        assert message.written == payload.encode(json.loads(body))


def _said(read: Any) -> tuple[str, str]:
    try:
        return "is", repr(read())
    except Invalid as error:
        return "is not", str(error)
