"""Bad input at the command line: exit 2, one sentence, nothing stored. On every store."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.bad_input import (
    BAD_BYTES,
    BAD_DURATIONS,
    BAD_JSON,
    BAD_KEYS,
    BAD_MOMENTS,
    BAD_NAMES,
    BAD_PRIORITIES,
    GOOD_JSON,
    GOOD_KEYS,
)
from tests.cli.conftest import HipqCommand


@pytest.fixture
def refused(hipq: HipqCommand, database: Callable[[], int]) -> Callable[..., str]:
    """Run `hipq enqueue shop:app` with these arguments, which must be refused; the sentence that says so."""

    def command(*arguments: str, stdin: bytes = b"") -> str:
        before = database()
        ran = hipq("enqueue", "shop:app", *arguments, stdin=stdin)
        assert ran.status == 2, ran
        assert ran.out == ""
        assert database() == before
        return ran.complaint

    return command


@pytest.mark.parametrize("text", BAD_JSON.values(), ids=BAD_JSON)
def test_bad_json_is_refused(refused: Callable[..., str], text: str) -> None:
    assert "data" in refused("orders", "quick", "--", text)
    assert "data" in refused("orders", "quick", "--data-file", "-", stdin=text.encode())


@pytest.mark.parametrize("data", BAD_BYTES.values(), ids=BAD_BYTES)
def test_bad_bytes_are_refused(refused: Callable[..., str], data: bytes) -> None:
    assert "data" in refused("orders", "quick", "--data-file", "-", stdin=data)


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_bad_names_are_refused(refused: Callable[..., str], name: str) -> None:
    assert "queue" in refused(name, "quick")
    assert "job type" in refused("orders", name)


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
def test_bad_keys_are_refused(refused: Callable[..., str], key: str) -> None:
    assert "job key" in refused("orders", "quick", "--key", key)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("at", BAD_MOMENTS),
        ("delay", BAD_DURATIONS),
        ("timeout", (*BAD_DURATIONS, "0", "0.0001")),
        ("priority", BAD_PRIORITIES),
        ("throttle-factor", ("0", "-1", "0.0001", "1.0005", "1000001", "NaN", "1e3", "", "x", "9" * 5_000)),
        (
            "window",
            ("", "x", "22:00", "22:00-22:00", "25:00-26:00", "1:00-2:00", "22:00-05:00@Nowhere", "22:00-05:00 on x"),
        ),
    ],
)
def test_bad_options_are_refused(refused: Callable[..., str], option: str, values: tuple[str, ...]) -> None:
    for value in values:
        assert option.partition("-")[0] in refused("orders", "quick", f"--{option}", value), value
    assert "not both" in refused("orders", "quick", "--at", "2031-01-15T08:00:00Z", "--delay", "1")
    assert "on-duplicate" in refused("orders", "quick", "--on-duplicate", "a" * 65_536)


@pytest.mark.parametrize("text", GOOD_JSON.values(), ids=GOOD_JSON)
def test_its_good_neighbours_come_back_as_they_were(hipq: HipqCommand, database: Callable[[], int], text: str) -> None:
    job_id = hipq("enqueue", "shop:app", "orders", "quick", "--data-file", "-", stdin=text.encode()).out.strip()
    assert hipq("job", "show", "shop:app", job_id, "--json").json["data"] == json.loads(text)
    assert hipq("job", "show", "shop:app", job_id).status == 0
    assert database() == (1 if len(text) < 8_192 else 2)  # its row, and its payload put aside


def test_good_keys_come_back_as_they_were(hipq: HipqCommand, database: Callable[[], int]) -> None:
    for key in GOOD_KEYS.values():
        job_id = hipq("enqueue", "shop:app", "orders", "quick", "--key", key).out.strip()
        (found,) = hipq("job", "list", "shop:app", "--key", key, "--json").json
        assert (str(found["id"]), found["key"]) == (job_id, key)
    assert database() == len(GOOD_KEYS)


def test_the_last_moment_there_is_can_be_asked_for(hipq: HipqCommand, database: Callable[[], int]) -> None:
    for at in ("9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00"):
        job_id = hipq("enqueue", "shop:app", "orders", "quick", "--at", at).out.strip()
        assert hipq("job", "show", "shop:app", job_id).status == 0
    for duration in ("36525d", "0", "0.5", "1w"):
        assert hipq("enqueue", "shop:app", "orders", "quick", "--delay", duration).status == 0
    assert database() == 7
