"""`hipq top`: one look elsewhere than on a terminal; on one, a picture that is drawn again and again."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq
from hipq.cli.frame import Frame, frame_of, lines_of
from hipq.stores.claims import Claim
from tests.cli.conftest import HipqCommand
from tests.cli.terminal import HIPQ


@pytest.fixture
def busy(url: str) -> Iterator[Hipq]:
    """Two jobs of orders run, one waits for its turn; one of mails is for later. An answer came early."""
    app = Hipq("shop", url)
    app.migrate()
    orders, mails = app.queue("orders", throttle_limit=3), app.queue("mails")
    orders.for_engine()
    orders.enqueue_many("quick", [1, 2, 3])
    mails.enqueue("mail", delay=3600)
    engine_id = app.store.take_lease(3600, "web-1:812", f'{{"{orders.number}":["quick"]}}')
    assert len(app.store.turn(engine_id, [], [Claim(orders.number, ("quick",), 2)], app.store.now()).won) == 2
    app.answer("orders", "quick", "nobody", 1)
    yield app
    app.close()


def test_elsewhere_than_on_a_terminal_it_is_one_look(hipq: HipqCommand, busy: Hipq, where: list[str]) -> None:
    shown = hipq("top", *where)
    assert shown.status == 0
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["shop", "orders", "1", "0", "2", "0", "0", "0", "0/s"] in lines
    assert ["shop", "mails", "0", "1", "0", "0", "0", "0", "0/s"] in lines
    assert ["orders", "2/3", "limit", "3", "(none)", "2"] in lines
    assert "  1 waiting for their job, 0 not looked at, 0 late" in shown.out.splitlines()
    assert [line for line in lines if line[2:3] == ["quick"] and line[-1] == "web-1:812"]
    assert len([line for line in lines if line[-1:] == ["web-1:812"]]) == 2
    ((engine, label, running, lease, served),) = [line for line in lines if line[-1:] == ["orders"]]
    assert (engine.isdecimal(), label, running, served) == (True, "web-1:812", "2", "orders")
    assert re.fullmatch(r"\d+m\d\ds|1h00m", lease)
    assert busy.store.engines()[0].lease > 3000


def test_a_look_as_json(hipq: HipqCommand, busy: Hipq, where: list[str]) -> None:
    found = hipq("top", *where, "--json").json
    assert [(one["queue"], one["ready"], one["running"]) for one in found["queues"]] == [
        ("orders", 1, 2),
        ("mails", 0, 0),
    ]
    assert [(one["held"], one["limit"], one["paused"]) for one in found["limits"]] == [(2, 3, "")]
    assert {(one["type"], one["worker"], one["attempt"]) for one in found["running"]} == {("quick", "web-1:812", 1)}
    assert {state: n for state, n in found["answers"].items() if n} == {"buffered": 1}
    busy.pause("mails", type="mail")
    busy.jobs.cancel_all("orders")
    found = hipq("top", *where, "--json").json
    assert [(one["queue"], one["paused"]) for one in found["limits"]] == [("orders", ""), ("mails", "mail")]
    assert (found["queues"][0]["done"], found["running"]) == (3, [])


def test_what_the_database_has_of_other_programs_is_not_the_applications(
    hipq: HipqCommand, busy: Hipq, url: str
) -> None:
    farm = Hipq("farm", url)
    farm.queue("cows").enqueue("milk")
    farm.close()
    assert [one["queue"] for one in hipq("top", "shop:app", "--json").json["queues"]] == ["orders", "mails"]
    assert [one["queue"] for one in hipq("top", "--db", url, "--json").json["queues"]] == ["orders", "mails", "cows"]
    assert len(busy.store.queues()) == 3


def test_a_database_without_queues(hipq: HipqCommand, url: str) -> None:
    assert hipq("migrate", "--db", url).status == 0
    none = hipq("top", "--db", url)
    assert (none.status, "there are no queues in this database yet" in none.complaint) == (2, True)


@pytest.mark.parametrize("height", [8, 12, 23, 60])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_picture_fits_its_terminal(width: int, height: int) -> None:
    queue = dict.fromkeys(("ready", "scheduled", "parked", "running", "waiting", "retrying", "failed", "done"), 10_000)
    job = {
        "type": "charge",
        "key": "k" * 40,
        "lane": "east",
        "attempt": 1,
        "for": 3.5,
        "worker": "a-long-name-of-a-host:1",
    }
    frame = Frame(
        where="sqlite:///shop.db",
        at=datetime.now(UTC),
        queues=[{"app": "shop", "queue": f"queue_{n}", **queue} for n in range(9)],
        more_queues=3,
        limits=[],
        running=[{"id": n << 16, "queue": "orders", **job} for n in range(300)],
        answers={"buffered": 10_000, "new": 0, "late": 2},
        engines=[
            {"engine": n, "worker": f"web:{n}", "running": 1, "lease": 9.5, "queues": "orders"} for n in range(20)
        ],
    )
    lines = lines_of(frame, width, height)
    assert len(lines) == height
    assert max(len(line) for line in lines if "late, of" not in line) <= width
    assert "answers" in lines or height < 12
    assert ("running, the longest first" in lines) == (height > 12)
    whole = lines_of(frame)
    assert (whole[0], len([line for line in whole if "charge" in line])) == ("queues", 300)
    assert "  and 3 more queues" in whole
    assert "10000+" in whole[2]
    assert "over 2000/s" in whole[2]


class Terminal:
    """`hipq top` on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], end: int, theirs: int) -> None:
        self.process, self._end, self._theirs = process, end, theirs
        self.seen = ""

    def comes_to_show(self, text: str) -> None:
        until = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            if select.select([self._end], [], [], 0.2)[0]:
                self.seen += os.read(self._end, 65_536).decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    @property
    def settings(self) -> Any:
        return termios.tcgetattr(self._theirs)

    def ends(self) -> int:
        """Reads on, or it could not write its last words; its exit status."""
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            if select.select([self._end], [], [], 0.05)[0]:
                self.seen += os.read(self._end, 65_536).decode(errors="replace")
        return self.process.wait(1)


@contextmanager
def on_a_terminal(folder: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    before = termios.tcgetattr(theirs)
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*HIPQ, "top", "shop:app", "--interval", "0.2"], cwd=folder, env=environment | {"TERM": "xterm"},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    terminal = Terminal(process, ours, theirs)
    try:
        yield terminal
        terminal.ends()
        assert terminal.settings == before, "keys are shown again, and lines are lines"
        assert terminal.seen.count("\x1b[?1049h") == terminal.seen.count("\x1b[?1049l") == 1, "the screen as it was"
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("key", ["q", "xyQ", "\x04"])
def test_a_key_leaves_it_and_the_terminal_is_as_before(folder: Path, busy: Hipq, key: str) -> None:
    with on_a_terminal(folder) as terminal:
        terminal.comes_to_show("web-1:812")
        assert terminal.settings[3] & (termios.ICANON | termios.ECHO) == 0
        busy.queues[1].enqueue_many("mail", range(77))
        terminal.comes_to_show(" 77 ")
        terminal.type(key)
        assert terminal.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_so_does_a_signal(folder: Path, busy: Hipq, number: signal.Signals) -> None:
    assert busy.queues
    with on_a_terminal(folder) as terminal:
        terminal.comes_to_show("web-1:812")
        terminal.process.send_signal(number)
        assert terminal.ends() == 0


def test_while_the_database_is_away_it_says_so_and_goes_on(folder: Path, busy: Hipq) -> None:
    if not busy.url.startswith("sqlite"):
        pytest.skip("what goes away here is a file")
    with on_a_terminal(folder) as terminal:
        terminal.comes_to_show("web-1:812")
        busy.close()
        os.rename("shop.db", "elsewhere.db")
        terminal.comes_to_show("no look for")
        os.rename("elsewhere.db", "shop.db")
        again = Hipq("shop", busy.url)
        again.queue("orders").enqueue_many("quick", range(76))
        again.close()
        terminal.comes_to_show(" 77 ")
        terminal.type("q")
        assert terminal.ends() == 0


def test_counts_stop_at_ten_thousand(busy: Hipq) -> None:
    assert frame_of(busy.store, "shop").queues[0]["ready"] == 1
    busy.queues[0].enqueue_many("quick", range(12_000))
    assert frame_of(busy.store, "shop").queues[0]["ready"] == 10_000
