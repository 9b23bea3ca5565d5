"""What the overview knows beside what it reads itself: doctor's judgement, and sums over very many queues."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.dashboard.seldom import Seldom
from hipq.doctor.diagnose import diagnose, look
from hipq.doctor.finding import PROBLEM, WARNING, Finding, View
from hipq.errors import HipqError
from hipq.looking.charts import SPANS, Past, busy, past
from hipq.stores.health.facts import Health
from hipq.stores.values import QueueTables

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

MANY: Final = 50
"""Queues whose counters are not summed up while somebody waits for the page."""
PATIENCE: Final = 0.05
"""Seconds for which a page waits for them the first time."""
_PARTS: Final = re.compile(r"`([^`]+)`|\bjob (\d+)\b")


class Part(NamedTuple):
    """A part of a sentence."""

    text: str
    kind: str = ""
    """"code", or "job": an id, for a link."""


class Attention(NamedTuple):
    """A finding that somebody should do something about."""

    level: str
    queue: str
    """As the site calls it; "" = it is about the whole database."""
    sentence: list[Part]
    advice: list[Part]


class Judgement(NamedTuple):
    at: int
    """When it was made; 0 = it could not be."""
    error: str = ""
    """Why it could not."""
    attention: tuple[Attention, ...] = ()
    """The worst first."""
    looked_at: str = ""
    busy: Mapping[int, int] = MappingProxyType({})
    """How much goes on in each queue, by its number."""


class Board:
    def __init__(self, site: Site) -> None:
        self._site = site
        self.judgement = Seldom(self._judged)
        """Doctor looks at the heads of indexes, queue by queue: milliseconds each, and far too long for a thousand."""
        self._pasts = {name: Seldom(partial(self._past_if_there, name)) for name in SPANS}

    def registered(self) -> dict[str, QueueTables]:
        """The site's queues that are in the database, by what they are called here."""
        found = {(one.app, one.name): one for one in self._site.store.queues()}
        pairs = ((name, found.get((queue.app.name, queue.name))) for name, queue in self._site.queues.items())
        return {name: tables for name, tables in pairs if tables}

    def past(self, over: str, every: Mapping[str, QueueTables]) -> Past | None:
        """What has happened in all of these queues; None = it is being read."""
        return self._past(over, every) if len(every) <= MANY else self._pasts[over].latest(PATIENCE)

    def _past(self, over: str, every: Mapping[str, QueueTables]) -> Past:
        store = self._site.store
        return past(store, [one.number for one in every.values()], SPANS[over], store.now())

    def _past_if_there(self, over: str) -> Past | None:
        with suppress(HipqError):  # a page finds out by itself that the database is away
            return self._past(over, self.registered())
        return None

    def _judged(self) -> Judgement:
        """Doctor's judgement now."""
        try:
            store = self._site.store
            health = look(self._site.apps[0].url, deep=False)
            apps = {app.name for app in self._site.apps}
            health.queues = [one for one in health.queues if one.tables.app in apps]
            findings = diagnose(health, View(f"--db {shlex.quote(self._site.where)}"))
            numbers = [one.tables.number for one in health.queues]
            starts = busy(store, numbers, store.now()) if numbers else {}
        except HipqError as error:
            return Judgement(0, str(error))
        names = {f"{queue.app.name}.{queue.name}": name for name, queue in self._site.queues.items()}
        levels = (PROBLEM, WARNING)
        bad = sorted((one for one in findings if one.level in levels), key=lambda one: levels.index(one.level))
        attention = tuple(_attention(one, names, self._site.shown(one.sentence)) for one in bad)
        return Judgement(health.now or health.here, "", attention, _looked_at(health), _work(health, starts))


def _attention(finding: Finding, names: dict[str, str], sentence: str) -> Attention:
    advice = finding.advice
    return Attention(
        finding.level, names.get(finding.queue, ""), _parts(sentence[:1].upper() + sentence[1:]),
        _parts(advice[:1].upper() + advice[1:]),
    )  # fmt: skip


def _parts(text: str) -> list[Part]:
    """A sentence with its commands and its jobs told apart."""
    found, end = [], 0
    for match in _PARTS.finditer(text):
        found += [Part(text[end : match.start()]), Part(match[1], "code") if match[1] else Part(match[2], "job")]
        end = match.end()
    return [part for part in [*found, Part(text[end:])] if part.text]


def _looked_at(health: Health) -> str:
    queues, engines = len(health.queues), len(health.alive)
    return (
        f"{queues:,} queue{'s' * (queues != 1)}, {engines:,} engine{'s' * (engines != 1)}, due jobs, limits, answers, "
        "listeners, clocks, indexes and storage"
    )


def _work(health: Health, starts: dict[int, int]) -> dict[int, int]:
    """Jobs that are somewhere in a queue, as far as doctor counted them, and runs that began lately."""
    found = {}
    for one in health.queues:
        samples = [*one.ready, *one.parked, *one.waiting, *one.left, *one.orphans]
        found[one.tables.number] = starts.get(one.tables.number, 0) + sum(sample.jobs for sample in samples)
    return found
