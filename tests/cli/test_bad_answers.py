"""Bad input to `hipq answer` and `hipq answers`: exit 2, one sentence, nothing stored and nothing changed. On every
store."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.bad_input import (
    BAD_ATTEMPTS,
    BAD_BYTES,
    BAD_JSON,
    BAD_KEYS,
    BAD_NAMES,
    BAD_NUMBERS,
    GOOD_JSON,
    GOOD_KEYS,
)
from tests.cli.conftest import HipqCommand

Refused = Callable[..., str]


@pytest.fixture
def refused(hipq: HipqCommand, database: Callable[[], int]) -> Refused:
    """Run a command of shop:app with these arguments, which must be refused; the sentence that says so."""

    def command(name: str, *arguments: str, stdin: bytes = b"") -> str:
        before = database()
        ran = hipq(*name.split(), "shop:app", *arguments, stdin=stdin)
        assert ran.status == 2, ran
        assert ran.out == ""
        assert database() == before
        return ran.complaint

    return command


@pytest.mark.parametrize("text", BAD_JSON.values(), ids=BAD_JSON)
def test_bad_json_is_refused(refused: Refused, text: str) -> None:
    assert "data" in refused("answer", "orders", "charge", "k", "--", text)
    assert "data" in refused("answer", "orders", "charge", "k", "--data-file", "-", stdin=text.encode())


@pytest.mark.parametrize("data", BAD_BYTES.values(), ids=BAD_BYTES)
def test_bad_bytes_are_refused(refused: Refused, data: bytes) -> None:
    assert "data" in refused("answer", "orders", "charge", "k", "--data-file", "-", stdin=data)


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_bad_names_are_refused(refused: Refused, name: str) -> None:
    assert "queue" in refused("answer", name, "charge", "k")
    assert "queue" in refused("answers list", "-q", name)
    assert "queue" in refused("answers count", "-q", name)
    assert "job type" in refused("answer", "orders", name, "k")
    assert "job type" in refused("answers list", "--type", name)


@pytest.mark.parametrize("key", [*BAD_KEYS.values(), "a" * 600], ids=[*BAD_KEYS, "600 characters"])
def test_bad_keys_and_ids_are_refused(refused: Refused, key: str) -> None:
    assert "job key" in refused("answer", "orders", "charge", key)
    assert "job key" in refused("answers list", "--key", key)
    assert "answer_id" in refused("answer", "orders", "charge", "k", "--id", key)


def test_bad_numbers_are_refused(refused: Refused) -> None:
    for value in BAD_ATTEMPTS:
        assert "attempt" in refused("answer", "orders", "charge", "k", "--attempt", value), value
    for value in BAD_NUMBERS:
        for name in ("show", "replay", "drop", "rekey"):
            more = ["k"] if name == "rekey" else []
            assert "the number of an answer" in refused(f"answers {name}", value, *more), value
        assert "a job id" in refused("answers list", "--job", value)
    for name in ("show", "replay", "drop"):
        assert "the number of an answer" in refused(f"answers {name}", "--", "-1")
    for option, value in (("after", "-1"), ("after", str(1 << 63)), ("limit", "0"), ("limit", "10001"), ("job", "-1")):
        assert "must be a whole number" in refused("answers list", f"--{option}", value)
    assert "--state" in refused("answers list", "--state", "finished")


def test_a_bad_new_key_leaves_the_answer_as_it_was(hipq: HipqCommand, refused: Refused) -> None:
    hipq("answer", "shop:app", "orders", "charge", "bad-new-key", "1")
    (before,) = hipq("answers", "list", "shop:app", "--key", "bad-new-key", "--json").json
    for key in BAD_KEYS.values():
        assert "job key" in refused("answers rekey", str(before["number"]), key)
    for name in BAD_NAMES.values():
        assert "job type" in refused("answers rekey", str(before["number"]), "k", "--type", name)
    assert hipq("answers", "list", "shop:app", "--key", "bad-new-key", "--json").json == [before]


@pytest.mark.parametrize("text", GOOD_JSON.values(), ids=GOOD_JSON)
def test_its_good_neighbours_come_back_as_they_were(hipq: HipqCommand, database: Callable[[], int], text: str) -> None:
    del database
    key = f"good {hash(text)}"
    assert hipq("answer", "shop:app", "orders", "charge", key, "--data-file", "-", stdin=text.encode()).status == 0
    (found,) = hipq("answers", "list", "shop:app", "--key", key, "--json").json
    assert found["data"] == json.loads(text)
    again = hipq("answers", "replay", "shop:app", str(found["number"]), "--json").json
    assert hipq("answers", "show", "shop:app", str(again["number"]), "--json").json["data"] == json.loads(text)
    assert hipq("answers", "show", "shop:app", str(again["number"])).status == 0


def test_good_keys_and_ids_come_back_as_they_were(hipq: HipqCommand, database: Callable[[], int]) -> None:
    for key in GOOD_KEYS.values():
        job_id = key[:100]
        assert hipq("answer", "shop:app", "orders", "charge", key, "--id", job_id).out == "buffered\n"
        assert hipq("answer", "shop:app", "orders", "charge", key, "--id", job_id).out == "duplicate\n"
        (found,) = hipq("answers", "list", "shop:app", "--key", key, "--json").json
        assert (found["key"], found["id"], found["copies"]) == (key, job_id, 2)
        assert hipq("answers", "list", "shop:app", "--key", key).status == 0
    assert database() == len(GOOD_KEYS)
