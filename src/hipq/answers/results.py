"""Waiting for jobs to end, from any number of threads and tasks at once, with few questions to the database.

One thread asks for all jobs together. It asks about a job soon after somebody began to wait for it, and then ever more
rarely: each pause is a quarter of the time waited so far. The end of a job in this process is noticed at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import Future
from typing import Final

from hipq.errors import JobFailed, NotFound, StoreUnavailable
from hipq.events import Event, Events
from hipq.job.model import Row
from hipq.job.states import FINAL, Code
from hipq.job.view import Job
from hipq.stores.protocols import Store

FIRST: Final = 0.005
"""Seconds until the first look for a job."""
QUARTER: Final = 0.25
"""The pause until the next look for a job, as a part of the time waited so far."""
RAREST: Final = 1.0
"""The most seconds between two looks for one job."""
LONG: Final = 5.0
"""Seconds after which a job is also looked for among all jobs, not only among those that ended."""
GAP: Final = 0.01
"""The least seconds between two looks, for whatever jobs."""


class _Waiting:
    def __init__(self) -> None:
        self.futures: list[Future[Row]] = []
        self.since = time.monotonic()
        self.look_at = self.since + FIRST


class Results:
    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._start()
        events.subscribe(self._ended)

    def close(self) -> None:
        """End all waits, because the app is closed."""
        self._closed = True
        self._give(list(self._waiting), StoreUnavailable("this app was closed"))
        self._news.set()

    def _start(self) -> None:
        self._closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._waiting: dict[int, _Waiting] = {}
        self._looking = False
        self._looks = 0

    def of(self, row: Row, seconds: float | None) -> Row:
        """The final row of a job that has succeeded; `row` is the job as it was a moment ago."""
        if row.state == FINAL:
            return _succeeded(row)
        future = self._ending(row.id)
        try:
            return _succeeded(future.result(seconds))
        except TimeoutError:
            raise _too_long(row.id, seconds) from None
        finally:
            self._give_up(row.id, future)

    async def aof(self, row: Row, seconds: float | None) -> Row:
        if row.state == FINAL:
            return _succeeded(row)
        future = self._ending(row.id)
        try:
            return _succeeded(await asyncio.wait_for(asyncio.wrap_future(future), seconds))
        except TimeoutError:
            raise _too_long(row.id, seconds) from None
        finally:
            self._give_up(row.id, future)

    async def ended(self, row: Row, seconds: float) -> Row | None:
        """The row of the job once it has ended, with whatever outcome; None if that takes longer."""
        future = self._ending(row.id)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:
            return None
        finally:
            self._give_up(row.id, future)

    def _ending(self, job_id: int) -> Future[Row]:
        """The row of a job once it is final."""
        if self._pid != os.getpid():
            self._start()  # a fork does not take the looking thread along
        future: Future[Row] = Future()
        with self._lock:
            self._waiting.setdefault(job_id, _Waiting()).futures.append(future)
            start, self._looking = not self._looking, True
        if start:
            threading.Thread(target=self._look, name="hipq-results", daemon=True).start()
        else:
            self._news.set()
        return future

    def _give_up(self, job_id: int, future: Future[Row]) -> None:
        with self._lock:
            waiting = self._waiting.get(job_id)
            if waiting and future in waiting.futures:
                waiting.futures.remove(future)
                if not waiting.futures:
                    del self._waiting[job_id]

    def _ended(self, event: Event) -> None:
        """Called with each event, in the thread that made the change."""
        if self._pid != os.getpid():
            return  # a forked child: nobody waits here
        if event.job is not None and event.job.state == FINAL and event.job.id in self._waiting:
            with self._lock:
                if event.job.id in self._waiting:
                    self._waiting[event.job.id].look_at = 0.0
            self._news.set()

    def _look(self) -> None:
        while True:
            now = time.monotonic()
            with self._lock:
                if not self._waiting or self._closed:
                    self._looking = False
                    return
                due = [job_id for job_id, one in self._waiting.items() if one.look_at <= now]
                for job_id in due:
                    one = self._waiting[job_id]
                    one.look_at = now + min(max(FIRST, (now - one.since) * QUARTER), RAREST)
            if due:
                self._ask(due)
            self._sleep()

    def _ask(self, due: list[int]) -> None:
        try:
            rows = self._store.ended(due)
            for row in rows:
                self._give([row.id], row)
            self._miss(set(due) - {row.id for row in rows})
        except StoreUnavailable:
            pass  # each wait has its own time-out
        except Exception as error:
            self._give(due, error)

    def _miss(self, ids: set[int]) -> None:
        """Look for a job that has not ended for long: it may have ended and been pruned at once. One such job per
        call."""
        with self._lock:
            long_ago = time.monotonic() - LONG
            old = [job_id for job_id in ids if job_id in self._waiting and self._waiting[job_id].since < long_ago]
        if old:
            job_id = old[self._looks % len(old)]
            self._looks += 1
            if self._store.get(job_id) is None:
                self._give([job_id], NotFound(f"there is no job {job_id} any more"))

    def _give(self, ids: list[int], found: Row | Exception) -> None:
        for job_id in ids:
            with self._lock:
                waiting = self._waiting.pop(job_id, None)
            for future in waiting.futures if waiting else ():
                if future.set_running_or_notify_cancel():
                    if isinstance(found, Exception):
                        future.set_exception(found)
                    else:
                        future.set_result(found)

    def _sleep(self) -> None:
        with self._lock:
            next_look = min((one.look_at for one in self._waiting.values()), default=0.0)
        self._news.wait(max(next_look - time.monotonic(), GAP))
        self._news.clear()


def _succeeded(row: Row) -> Row:
    if row.code != Code.OK:
        raise JobFailed(Job(row))
    return row


def _too_long(job_id: int, seconds: float | None) -> TimeoutError:
    return TimeoutError(f"job {job_id} has not ended within {seconds:g} s")
