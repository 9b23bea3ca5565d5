"""Idempotency-Key: the same key, tenant and job type give the same ids for 24 hours, at every daemon.

What was given is written in the transaction that stores the jobs, so neither is ever there without the other: whoever
hears nothing asks again, and gets what there is. It is kept in one of so many notes that a hash chooses, each with what
was given in the last 24 hours, so there is never more of it than of a day.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from hipq.daemon import job_factory, payloads
from hipq.daemon.http.reply import HttpError
from hipq.daemon.ids import Ids
from hipq.errors import DuplicateKey, StoreBusy
from hipq.job.model import QUEUE_BITS, New, numbered
from hipq.job.when import SECOND
from hipq.stores.notes import note
from hipq.stores.protocols import Store
from hipq.stores.values import JOURNALS, Stored

if TYPE_CHECKING:
    from hipq.daemon.http.add import Wanted

NOTES: Final = 1 << 16
KEPT: Final = 24 * 3600 * SECOND
"""Microseconds for which ids are given again."""
LONGEST: Final = 200
TRIES: Final = 20


class Given(msgspec.Struct, array_like=True, frozen=True):
    """What one key was given."""

    key: str
    body: str
    at: int
    runs: tuple[tuple[int, int], ...]
    """Ids that follow each other: the first, and how many."""


_notes = msgspec.json.Decoder(tuple[Given, ...])


class Asked:
    """One key, and the body it came with."""

    def __init__(self, tenant: str, jobtype: str, key: bytes, text: bytes) -> None:
        self.key = sha256(b"\0".join((tenant.encode(), jobtype.encode(), checked(key)))).hexdigest()
        self.body = sha256(text).hexdigest()
        self.note = f"once {int(self.key[:8], 16) % NOTES:04x}"


class Once:
    """Its verbs may wait for the store."""

    def __init__(self, store: Store, queue: int, announce: Callable[[Sequence[New], Sequence[Stored]], None]) -> None:
        self._store = store
        self._queue = queue
        self._ids = Ids(store, queue)
        self._announce = announce

    def known(self, asked: Asked) -> list[int] | None:
        """The ids this key was given; None if it is new."""
        return self._found(asked, note(self._store, JOURNALS, asked.note), self._store.now())

    def add(self, asked: Asked, tenant: str, wanted: Sequence[Wanted]) -> list[int]:
        """Store these jobs, and what their key was given; or, if it was given something meanwhile, that."""
        for _ in range(TRIES):
            before, now = note(self._store, JOURNALS, asked.note), self._store.now()
            found = self._found(asked, before, now)
            if found is not None:
                return found
            jobs = self._made(tenant, wanted, now)
            ids = [job_id for job_id, _ in jobs]
            mine = Given(asked.key, asked.body, now, runs(ids))
            try:
                stored = self._store.ingest(
                    jobs, asked.note, before, msgspec.json.encode((*_left(before, now), mine)).decode()
                )
            except DuplicateKey:  # of a job's own key: unless this very request was first
                found = self.known(asked)
                if found is None:
                    raise
                return found
            if stored:
                self._announce([new for _, new in jobs], [Stored(job_id) for job_id in ids])
                return ids
        raise StoreBusy("too many requests with an Idempotency-Key at once; try again")

    def _made(self, tenant: str, wanted: Sequence[Wanted], now: int) -> list[tuple[int, New]]:
        for one in wanted:
            for payload in one.payloads:
                payloads.check(payload)
        news = [
            job_factory.job(self._queue, tenant, one.type, payload, one.options, now)
            for one in wanted
            for payload in one.payloads
        ]
        if self._ids.scarce:
            self._ids.reserve()
        first = self._ids.take(tenant, len(news))
        return [(numbered(first + n, self._queue), new) for n, new in enumerate(news)]

    def _found(self, asked: Asked, text: str, now: int) -> list[int] | None:
        for one in _left(text, now):
            if one.key == asked.key:
                if one.body != asked.body:
                    raise HttpError(422, "this Idempotency-Key has come with another body")
                return ids_of(one.runs)
        return None


def checked(key: bytes) -> bytes:
    text = key.decode("latin-1")
    if not 1 <= len(key) <= LONGEST or not text.isascii() or not text.isprintable():
        raise HttpError(400, f"an Idempotency-Key must have 1 to {LONGEST} characters, all of them printable ASCII")
    return key


def runs(ids: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Ids in short: a hundred thousand that follow each other are two numbers."""
    found: list[tuple[int, int]] = []
    for job_id in ids:
        if found and job_id == found[-1][0] + (found[-1][1] << QUEUE_BITS):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((job_id, 1))
    return tuple(found)


def ids_of(runs: Sequence[tuple[int, int]]) -> list[int]:
    return [first + (number << QUEUE_BITS) for first, count in runs for number in range(count)]


def _left(text: str, now: int) -> tuple[Given, ...]:
    """Those that still count."""
    there = _notes.decode(text) if text else ()
    return tuple(one for one in there if one.at > now - KEPT)
