"""What is seen while the demo runs: a picture that is redrawn on a terminal, lines anywhere else."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hipq.benchmark.picture import Ink
from hipq.demo.news import Item, News
from hipq.demo.shop import CAPS, MAILS, SHARES, Shop
from hipq.demo.story import ORDERS, Story
from hipq.demo.tally import PHASES, WORDS, Tally
from hipq.job.answer import BUFFERED
from hipq.job.states import DONE, READY, WAITING

EARLY: Final = {BUFFERED: "early"}
"""hipq's words that have a plainer one for newcomers."""
_REDRAWN: Final = 8
"""Redraws a second."""
_NEWS: Final = 12
"""The most lines of news."""
_NARROW: Final = 80
"""The number of columns below which not everything is shown."""
_FEW: Final = (READY, WAITING, DONE)
"""The phases that a narrow terminal has room for."""


class Scene:
    """Everything that can be shown."""

    def __init__(self, shop: Shop, tally: Tally, story: Story, news: News, seconds: float) -> None:
        self.shop, self.tally, self.story, self.news, self.seconds = shop, tally, story, news, seconds

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.news.began

    @property
    def phases(self) -> Mapping[str, Counter[str]]:
        return self.tally.phases(self.shop.clock.now())

    @property
    def words(self) -> dict[str, int]:
        """The outcomes of answers when they arrived. An early answer is matched later, which is an event too; so the
        outcome that the bank got is shown."""
        counts = self.story.ledger.get("words", {})
        return {EARLY.get(word, word): counts.get(word, 0) for word in WORDS}


# -- a picture -------------------------------------------------------------------------------------------------------
class TerminalView:
    """The view on a terminal. `Live` asks for a new picture each time."""

    def __init__(self, scene: Scene, console: Console) -> None:
        self._scene, self._console = scene, console
        self._ink = Ink.of(console.encoding)
        self._live = Live(self, console=console, refresh_per_second=_REDRAWN, transient=True)

    def __enter__(self) -> TerminalView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal has been closed
            self._live.stop()

    def __rich__(self) -> RenderableType:
        """As much as there is room for: a picture higher than the terminal could not be redrawn."""
        width, height = self._console.size
        parts: list[RenderableType] = [self._title()]
        room = height - 2
        for lines, part in ((6, self._limits), (5, self._phases), (4, self._counts)):
            if room < lines:
                return Group(*parts)
            parts += [Text(), part(width)]
            room -= lines
        if news := self._scene.news.latest(min(room - 1, _NEWS)):
            parts += [Text(), self._news(news)]
        return Group(*parts)

    def _title(self) -> RenderableType:
        scene = self._scene
        line = _grid()
        line.add_column(ratio=1, no_wrap=True)
        line.add_column(no_wrap=True, justify="right")
        line.add_row(
            Text("hipq demo: a shop, and a bank in another process", "bold"),
            Text(f"{scene.elapsed:.0f} s of about {scene.seconds:.0f}", "dim"),
        )
        return line

    def _limits(self, width: int) -> RenderableType:
        payments, mails = self._scene.tally.held("payments"), self._scene.tally.held("mails")
        rows = [("payments", payments.get("all", 0), CAPS["all"])]
        rows += [(f"  {region}", payments.get(region, 0), CAPS[region]) for region in SHARES]
        rows += [("mails", mails.get("all", 0), MAILS)]
        words = " in use" if width >= _NARROW else ""
        table, room = _grid(), max(width - 23 - len(words), 4)
        table.add_column(width=10, no_wrap=True)
        table.add_column(width=room, no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        for name, used, cap in rows:
            length = room * cap // CAPS["all"]
            bar = self._ink.bar(min(used, cap), cap, length)
            line = Text(bar, "yellow" if used >= cap else "cyan") + Text(_rest(self._ink) * (length - len(bar)), "dim")
            table.add_row(name, line, f"{used:>2} of {cap:>2}{words}")
        return table

    def _phases(self, width: int) -> RenderableType:
        phases = PHASES if width >= _NARROW else _FEW
        spare = max(width - 12 - sum(len(name) + 1 for name in phases), 0) // len(phases)
        table = Table.grid(padding=(0, 1))
        table.add_column(width=10, no_wrap=True)
        for name in phases:
            table.add_column(justify="right", no_wrap=True, width=len(name) + spare)
        table.add_row(Text("jobs", "dim"), *(Text(name, "dim") for name in phases))
        found = self._scene.phases
        for queue in ("payments", "mails", "office"):
            counts = found.get(queue, Counter())
            table.add_row(queue, *(str(counts[name] or "-") for name in phases))
        return table

    def _counts(self, _width: int) -> RenderableType:
        scene, codes, ledger = self._scene, self._scene.tally.codes(), self._scene.story.ledger
        ended = {name: codes[name] for name in ("ok", "failed", "error")}
        most = ledger.get("most", {}).get("all", 0)
        bank = f"{ledger.get('requests', 0)} requests, {ledger.get('open', 0)} open, never more than {most}"
        return Group(
            _line("ended", f"{_said(ended)}; {scene.tally.rate():.0f} in the last second"),
            _line("answers", _said(scene.words)),
            _line("the bank", bank),
        )

    def _news(self, news: list[Item]) -> RenderableType:
        table = _grid()
        table.add_column(width=6, no_wrap=True, justify="right")
        table.add_column(width=10, no_wrap=True, overflow="ellipsis")
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for item in news:
            table.add_row(Text(f"{item.seconds:.1f} s", "dim"), item.who, item.text)
        return table


def _grid() -> Table:
    return Table.grid(padding=(0, 1), expand=True)


def _rest(ink: Ink) -> str:
    return "." if ink == "#" else "░"


def _line(name: str, text: str) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    return line.append(f"{name:<12}", "dim").append(text)


def _said(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


# -- lines -----------------------------------------------------------------------------------------------------------
class PlainView:
    """The view for a file, a pipe or a log: a line now and then, and each kind of event the first time it happens."""

    def __init__(self, scene: Scene, every: float, gone: Callable[[], None]) -> None:
        self._scene, self._every, self._gone = scene, every, gone
        self._shown_kinds: set[str] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell_on, name="demo-lines", daemon=True)
        self.broken: OSError | None = None
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
        if self.broken:
            raise self.broken

    def _tell(self, item: Item) -> None:
        with self._lock:
            if item.kind in self._shown_kinds:
                return
            self._shown_kinds.add(item.kind)
        self._write(f"{item.seconds:5.1f} s  {item.who:<10} {item.text}")

    def _tell_on(self) -> None:
        while not self._over.wait(self._every):
            scene = self._scene
            found: Counter[str] = sum(scene.phases.values(), Counter())
            held = scene.tally.held("payments").get("all", 0)
            counts = _said({name: found[name] for name in _FEW})
            self._write(f"{scene.elapsed:5.1f} s  limit {held} of {CAPS['all']}; {counts}; answers {_answers(scene)}")

    def _write(self, line: str) -> None:
        if self.broken:
            return
        try:
            click.echo(line)
        except OSError as error:  # the reader has gone: nobody watches any more
            self.broken = error
            self._gone()


def _answers(scene: Scene) -> str:
    return _said({name: count for name, count in scene.words.items() if count}) or "none yet"
