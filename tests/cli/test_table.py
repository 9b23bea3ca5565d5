"""Tables: as wide as their terminal has room, whole in a pipe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq
from hipq.cli.table import laid_out
from tests.cli.conftest import HipqCommand
from tests.cli.terminal import HIPQ, on_terminal

WHEN = datetime(2026, 11, 16, 18, 5, 9, 999_999, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"id": 5, "key": "order-" + "x" * 40, "note": "a" * 30, "done_at": WHEN},
    {"id": 65_537, "key": None, "note": "b", "done_at": None},
]
COLUMNS = ("id", "key", "note", "done_at")


def test_numbers_are_right_aligned_and_times_short_and_in_utc() -> None:
    rows: list[dict[str, Any]] = [
        {"n": 5, "at": WHEN, "yes": True, "m": 1.5},
        {"n": 4321, "at": None, "yes": False, "m": None},
    ]
    assert laid_out(("n", "at", "yes", "m"), rows) == [
        "   n  at                    yes    m",
        "   5  2026-11-16 18:05:09Z  yes  1.5",
        "4321                        no",
    ]
    east = {"at": WHEN.astimezone(timezone(timedelta(hours=5)))}
    assert laid_out(("at",), [east])[1] == "2026-11-16 18:05:09Z"


def test_without_a_width_nothing_is_cut() -> None:
    lines = laid_out(COLUMNS, ROWS, None, spare=("note",))
    assert ROWS[0]["key"] in lines[1]
    assert ROWS[0]["note"] in lines[1]
    assert len(laid_out(("key",), [{"key": "k" * 500}])[1]) == 500


@pytest.mark.parametrize("width", range(40, 120))
def test_text_is_cut_to_the_width_numbers_and_times_are_not(width: int) -> None:
    lines = laid_out(COLUMNS, ROWS, width)
    if width >= 5 + 6 + 6 + 20 + 6:
        assert max(map(len, lines)) <= width
        assert lines[1].startswith("    5  order")
        assert lines[1].endswith("2026-11-16 18:05:09Z")
        assert ("…" in lines[1]) == (width < 5 + 46 + 30 + 20 + 6)
        assert lines[2].startswith("65537")
    else:
        assert lines[0] == "id       5"
        assert lines[1].startswith("key      order-xxx")


def test_spare_columns_go_before_anything_is_cut() -> None:
    lines = laid_out(COLUMNS, ROWS, 80, spare=("note", "done_at"))
    assert lines[0].split() == ["id", "key", "done", "at"]
    assert "…" not in "".join(lines)
    assert laid_out(COLUMNS, ROWS, 60, spare=("note", "done_at"))[0].split() == ["id", "key"]


def test_a_row_that_cannot_fit_is_a_paragraph() -> None:
    assert laid_out(("number", "at", "then"), [{"number": 1, "at": WHEN, "then": None}] * 2, 20) == [
        "number  1", "at      2026-11-16 18:05:09Z", "", "number  1", "at      2026-11-16 18:05:09Z"
    ]  # fmt: skip


def test_what_is_in_a_cell_cannot_play_tricks() -> None:
    assert laid_out(("key",), [{"key": "a\x1b[2J\nb"}])[1] == "a\\x1b[2J\\nb"


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("command", ["answers list", "answers count", "queue list", "config"])
def test_commands_fit_their_terminal(shop: Hipq, folder: Path, command: str, columns: int) -> None:
    for number in range(12):
        shop.answer("orders", "a_long_name_of_a_type", f"order-{number}-of-somebody-with-a-long-name", number)
    shop.pause("orders", lane="a-lane-with-a-long-name")
    shop.close()
    where = [] if command == "config" else ["shop:app"]
    shown = on_terminal([*HIPQ, *command.split(), *where], folder, columns=columns)
    assert shown.status == 0, shown.text
    lines = [line for line in shown.lines if not line.startswith(("database: ", "file: ", "there is more"))]
    assert len(lines) > 2
    wide = [line for line in lines if len(line) > columns]
    assert wide == [] or columns == 40  # there, a long value of a paragraph goes on in the next line


def test_in_a_pipe_they_are_whole(hipq: HipqCommand, shop: Hipq) -> None:
    key = "order-of-somebody-with-a-very-long-name-" * 5
    shop.answer("orders", "charge", key, 1)
    assert key in hipq("answers", "list", "shop:app").out
