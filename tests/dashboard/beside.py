"""What goes on beside the pages that are timed: `python -m tests.dashboard.beside run|add URL RATE`, until its input
ends. Then it says how many jobs it has run, or added."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.dashboard.very_many import shop

QUEUE: Final = "mails"
"""It has no limits, and nothing that the pages name."""
STEP: Final = 0.1


@contextmanager
def busy(url: str, rate: int) -> Iterator[Callable[[], str]]:
    """Two processes, one that adds so many jobs a second and one that runs them; nobody, if the rate is 0. What is
    yielded says what they did, and ends them."""
    command = [sys.executable, "-m", "tests.dashboard.beside"]
    began = time.monotonic()
    both = [
        subprocess.Popen([*command, what, url, str(rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for what in (("run", "add") if rate else ())
    ]

    def ended() -> str:
        seconds = time.monotonic() - began
        rates = [int(one.communicate()[0]) / seconds for one in both]  # a process that has failed has said why
        said = [f"{rate:,.0f} jobs/s {what}" for rate, what in zip(rates, ("run", "added"), strict=False)]
        both.clear()
        return ", ".join(said)

    try:
        yield ended
    finally:
        for one in both:
            one.kill()
            one.communicate()


def main(what: str, url: str, rate: str) -> None:
    told = threading.Event()

    def hear() -> None:
        sys.stdin.read()
        told.set()

    threading.Thread(target=hear, daemon=True).start()
    print((_run if what == "run" else _add)(url, int(rate), told))


def _run(url: str, _rate: int, told: threading.Event) -> int:
    app, done = shop(url), [0]

    @app.declared.find(QUEUE).job("beside")
    def beside(_job: object) -> None:
        done[0] += 1  # nearly right is enough

    with app.working([QUEUE], concurrency=20):
        told.wait()
    return done[0]


def _add(url: str, rate: int, told: threading.Event) -> int:
    """Never more than the rate: what the database does not take in time is not made up for."""
    app, added, due = shop(url), 0, time.monotonic()
    while not told.wait(max(due - time.monotonic(), 0)):
        app.declared.find(QUEUE).enqueue_many("beside", [{"n": n} for n in range(round(rate * STEP))])
        added += round(rate * STEP)
        due = max(due + STEP, time.monotonic())
    return added


if __name__ == "__main__":
    main(*sys.argv[1:])
