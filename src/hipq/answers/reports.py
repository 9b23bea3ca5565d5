"""What listeners report of themselves: a note for each stream, which `hipq answers listeners` shows.

A listener reports its counts every few seconds. If it is killed, the counts of the last few seconds are missing; the
answers are not.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from hipq.stores.protocols import Store
from hipq.stores.values import LISTENERS

STALE: Final = 60_000_000
"""Microseconds without a report after which a listener is not shown any more."""


class Report(NamedTuple):
    url: str
    who: str
    counts: dict[str, int]
    """Answers by outcome since the last report."""
    lag: int | None
    error: str
    gone: bool


class Member(msgspec.Struct, omit_defaults=True):
    """A process that listens to a stream."""

    seen: int
    lag: int | None = None
    error: str = ""


class Stream(msgspec.Struct, omit_defaults=True):
    """One stream, as all processes report that listened to it."""

    url: str = ""
    counts: dict[str, int] = {}
    members: dict[str, Member] = {}


def write_report(store: Store, app: str, listener: str, report: Report) -> None:
    now = store.now()

    def change(text: str) -> str:
        stream = msgspec.json.decode(text, type=Stream) if text else Stream()
        stream.url = report.url
        for outcome, count in report.counts.items():
            stream.counts[outcome] = stream.counts.get(outcome, 0) + count
        stream.members = {who: one for who, one in stream.members.items() if one.seen > now - STALE}
        stream.members[report.who] = Member(now, report.lag, report.error)
        if report.gone:
            del stream.members[report.who]
        return msgspec.json.encode(stream).decode()

    store.change_note(LISTENERS, f"{app} {listener}", change)


def streams(store: Store, app: str) -> dict[str, Stream]:
    """The streams of an app by their listeners' names, with the processes that reported lately."""
    now = store.now()
    found: dict[str, Stream] = {}
    for name, text in store.notes(LISTENERS).items():
        whose, _, listener = name.partition(" ")
        if whose == app:
            stream = msgspec.json.decode(text, type=Stream)
            stream.members = {who: one for who, one in stream.members.items() if one.seen > now - STALE}
            found[listener] = stream
    return found


def as_rows(found: dict[str, Stream], outcomes: list[str]) -> list[dict[str, Any]]:
    """The rows of a table, one for each stream."""
    rows = []
    for listener, stream in found.items():
        lags = [one.lag for one in stream.members.values() if one.lag is not None]
        errors = sorted({one.error for one in stream.members.values() if one.error})
        row: dict[str, Any] = {
            "listener": listener.partition(" ")[0],
            "url": stream.url,
            "listening": len(stream.members),
        }
        row |= {"lag": max(lags, default=None), **{name: stream.counts.get(name, 0) for name in outcomes}}
        rows.append({**row, "error": "; ".join(errors)})
    return rows
