"""What is seen while the demo runs: a picture that is redrawn on a terminal, lines anywhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TextIO

import click

from hipq.demo.news import Item
from hipq.demo.run import Run
from hipq.demo.shop import CAPS
from hipq.demo.summary import ORDERS, WORDS
from hipq.job.states import DONE, READY, WAITING
from hipq.job.units import number
from hipq.terminal import Ink, Picture, fitted

_REDRAWN: Final = 4
"""Redraws a second."""
_NEWS: Final = 12
"""The most lines of news."""


class Scene:
    """Everything that can be shown."""

    def __init__(self, run: Run) -> None:
        self.run, self.news = run, run.news

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.news.began

    @property
    def jobs(self) -> str:
        return said({phase: self.run.shop.count(phase) for phase in (READY, WAITING, DONE)})

    @property
    def answers(self) -> str:
        """The outcomes of answers when they arrived."""
        counts = self.run.ledger.get("words", {})
        return said({plain: counts[word] for word, plain in WORDS.items() if word in counts}) or "none yet"

    @property
    def held(self) -> dict[str, float]:
        """The units of the limits of payments that are in use."""
        held = {lane: number(units) for lane, units in self.run.shop.held.items()}
        return {"all": sum(held.values()), **held}


def said(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


class TerminalView:
    """The view on a terminal, which a thread draws anew a few times a second."""

    def __init__(self, scene: Scene, terminal: TextIO) -> None:
        self._scene, self._picture = scene, Picture(terminal)
        self._ink = Ink.of(terminal.encoding)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, name="demo-picture", daemon=True)

    def __enter__(self) -> TerminalView:
        self._picture.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with suppress(OSError):  # the terminal has been closed
            self._picture.__exit__()

    def _draw_on(self) -> None:
        with suppress(OSError):
            while not self._over.wait(1 / _REDRAWN):
                self._picture.draw(self._lines())

    def _lines(self) -> list[str]:
        """As much as there is room for: a picture higher than the terminal could not be redrawn."""
        scene, ledger, (columns, rows) = self._scene, self._scene.run.ledger, self._picture.size
        title = fitted(f"hipq demo: {scene.elapsed:.0f} s of about {scene.run.seconds:.0f}", columns)
        facts = {
            "jobs": scene.jobs, "answers": scene.answers,
            "the bank": f"{ledger.get('requests', 0)} requests, {ledger.get('open', 0)} open",
        }  # fmt: skip
        drawn = [click.style(title, bold=True), *self._bars(columns)]
        texts = [f"{name:<11}{text}" for name, text in facts.items()]
        news = [str(item) for item in list(scene.news.latest)[-_NEWS:]]
        room = max(rows - 2 - len(drawn) - len(texts), 0)
        return [*drawn, *(fitted(line, columns) for line in (*texts, *news[:room]))][: rows - 2]

    def _bars(self, columns: int) -> list[str]:
        held, room = self._scene.held, max(columns - 20, 4)
        bars = []
        for name in CAPS:
            used, cap = held.get(name, 0), CAPS[name]
            bar = self._ink.bar(min(used, cap), cap, room * cap // CAPS["all"])
            label = "payments" if name == "all" else f"  {name}"
            line = fitted(f"{label:<11}{bar:<{room}} {used:>2g} of {cap:>2}", columns)
            bars.append(line.replace(bar, click.style(bar, fg="yellow" if used >= cap else "cyan"), 1) if bar else line)
        return bars


class PlainView:
    """The view for a file, a pipe or a log: a line now and then, and each kind of event the first time it happens."""

    def __init__(self, scene: Scene, every: float, gone: Callable[[], None]) -> None:
        self._scene, self._every, self._gone = scene, every, gone
        self._shown_kinds: set[str] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell_on, name="demo-lines", daemon=True)
        self._broken: OSError | None = None
        """Why nothing more can be written."""

    def __enter__(self) -> PlainView:
        self._write(
            f"{ORDERS} orders, at most {CAPS['all']} at a time, and a bank in another process that answers as it likes."
        )
        self._scene.news.listener = self._tell
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._broken:
            raise self._broken

    def _tell(self, item: Item) -> None:
        with self._lock:
            if item.kind in self._shown_kinds:
                return
            self._shown_kinds.add(item.kind)
        self._write(str(item))

    def _tell_on(self) -> None:
        scene = self._scene
        while not self._over.wait(self._every):
            limit = f"limit {scene.held['all']:g} of {CAPS['all']}"
            self._write(f"{scene.elapsed:5.1f} s  {limit}; {scene.jobs}; answers {scene.answers}")

    def _write(self, line: str) -> None:
        if self._broken:
            return
        try:
            click.echo(line)
        except OSError as error:  # the reader has gone: nobody watches any more
            self._broken = error
            self._gone()
