"""Processes whose clocks differ, and what each of them goes by."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.stores import clock as clocks
from hipq.stores.clock import SystemClock
from hipq.stores.sqlite.store import SqliteStore
from hipq.testing.clock import HandClock
from tests.engine.working import until_empty

NAMESPACE = ["unshare", "--user", "--map-root-user", "--time", "--monotonic", "{}", "--boottime", "{}", "--fork"]
PROGRAM = """
import sys
from hipq.stores.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
print(len(store.engines()), store.take_lease(60, "in the container"))
"""


def in_time_namespace(offset: int, *command: str) -> str:
    words = [word.format(offset) for word in NAMESPACE]
    try:
        return subprocess.run([*words, *command], capture_output=True, text=True, timeout=60, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine makes no time namespaces: {getattr(error, 'stderr', error)}")


@pytest.mark.parametrize("offset", [100_000, -300])
def test_leases_hold_between_containers_with_time_namespaces_of_their_own(tmp_path: Path, offset: int) -> None:
    """A container that was moved here has a steady clock of its own; its processes share the file with others."""
    if offset < 0 and time.monotonic() < -offset + 60:
        offset = 300
    store = SqliteStore(f"{tmp_path}/a.db")
    mine = store.take_lease(60, "outside")
    seen, theirs = in_time_namespace(offset, sys.executable, "-c", PROGRAM, f"{tmp_path}/a.db").split()
    assert int(seen) == 1, "our lease looked expired in there"
    assert [engine.engine_id for engine in store.engines()] == [mine, int(theirs)]
    with store._db.reading() as conn:
        ((until,),) = conn.execute("SELECT lease_until FROM hipq_engines WHERE engine_id = ?", (theirs,)).fetchall()
    assert 0 < until - SystemClock().steady() <= 60_000_000, "it would last for as long as the clocks differ"
    store.close()


def test_a_lease_does_not_run_out_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux's monotonic clock stands still then; its boot-time clock, which goes on, is not asked."""
    monkeypatch.setattr(time, "monotonic_ns", lambda: 5_000_000)
    monkeypatch.setattr(clocks, "time_namespace_offset", lambda: 0)
    assert SystemClock().steady() == 5_000


def test_a_job_of_a_process_whose_clock_is_ahead_starts_when_the_engines_clock_says_so(tmp_path: Path) -> None:
    """Due is judged by the clock of the engine that looks; `why` says what it waits for."""
    url = f"sqlite:///{tmp_path}/a.db"
    behind = HandClock()
    ahead = HandClock(behind.now() + 3_600_000_000, behind.steady())
    adding, working = Hipq("shop", url, clock=ahead), Hipq("shop", url, clock=behind)
    working.queue("orders").job("work")(lambda job: job.data)
    job_id = adding.queue("orders").enqueue("work", 1)
    until_empty(working)  # which does not wait for it, as for no job whose time has not come
    assert working.job(job_id).state == "initial"
    assert "1 h" in str(working.why(job_id)) or "09:00" in str(working.why(job_id))
    behind.advance(hours=1)
    until_empty(working)
    assert working.job(job_id).code == "ok"
    adding.close()
    working.close()


PROGRAM_OF_ITS_OWN_TIME = """
import sys, time
real, ahead = time.time_ns, int(sys.argv[2]) * 10**9
time.time_ns = lambda: real() + ahead
from hipq import Hipq
app = Hipq("shop", sys.argv[1])
orders = app.queue("orders")
ran = []
work = orders.job("work")(lambda job: ran.append(job.data))
tick = orders.job("tick")(lambda job: ran.append("tick"))
tick.cron(sys.argv[3], name="hourly")
for word in sys.argv[4:]:
    app.run(until_empty=True) if word == "run" else work.enqueue(word)
print(*sorted(ran))
"""


def test_two_processes_whose_clocks_differ_by_an_hour(tmp_path: Path) -> None:
    """What docs/operating.md promises: nothing starts before its time by the clock of the worker that looks, no tick
    comes twice, and nobody hangs."""
    url = f"sqlite:///{tmp_path}/a.db"
    hourly = f"{(time.gmtime().tm_min + 30) % 60} * * * *"  # at no moment that comes while this test runs

    def program(ahead: int, *words: str) -> list[str]:
        command = [sys.executable, "-c", PROGRAM_OF_ITS_OWN_TIME, url, str(ahead), hourly, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()

    assert program(0, "now1", "run") == ["now1"]
    assert program(3600, "ahead1", "run") == ["ahead1", "tick"]
    assert program(0, "now2", "run") == ["now2"], "a tick came twice"
    assert program(3600, "ahead2") == []
    assert program(0, "now3", "run") == ["now3"]
    assert program(3600, "now4", "run") == ["ahead2", "now4"]
