"""The load of the fault campaign: the app its workers run, and the client that uses it.

    python -m tests.crash.load URL FOLDER

The client adds jobs, brings answers and cancels jobs until there is a file `stop` in the folder, and then until every
answer it owes is acknowledged. It lives as any client must: a call that fails with StoreUnavailable may have been done
or not. An answer is brought again until it is acknowledged; a job is not added again, so that none may be there twice.

All processes append to one file, `log`, what they do and what they are told, each line by one write: the order of the
lines is the order in which it happened.

    added ID DATA         the call returned: this job must not be lost
    unanswered DATA       the call failed: there may be such a job, or none, but never two
    answered DATA         the answer to this job was acknowledged
    cancelled ID          the cancel was acknowledged
    began ID ATTEMPT      a handler begins
    looked ID ATTEMPT     an answer handler begins
    saved ID ATTEMPT HOW  an engine, or a client, was told that this outcome is stored
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hipq import Failed, Hipq, Job, Ok, Wait, fixed, share
from hipq.errors import Conflict, NotFound, StoreUnavailable
from hipq.events import Event

OUTCOMES: Final = ("ok", "failed", "gave up", "again", "waits", "timed out")
LIMIT: Final = 10
SHARES: Final = {"east": 40, "north": 30, "west": 30}
LONG: Final = 3600.0
KINDS: Final = {
    "work": 8, "flaky": 3, "charge": 4, "direct": 3, "silent": 1, "unwanted": 2, "shared": 4, "urgent": 1, "many": 2,
}  # fmt: skip
"""What a client adds, and how often."""
IN_ONE_CALL: Final = 20
PAUSE: Final = 0.01


class Log:
    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def __call__(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def make_load(url: str, folder: Path) -> Hipq:
    log = Log(folder)
    app = Hipq("crash", url)
    jobs, limited = app.queue("jobs"), app.queue("limited", throttle_limit=LIMIT, limits=[share(SHARES)])

    def saved(event: Event) -> None:
        assert event.job
        log("saved", event.job.id, event.job.attempt, event.name)

    app.events.subscribe(saved, *OUTCOMES)

    def work(job: Job[Any]) -> str:
        log("began", job.id, job.attempt)
        time.sleep(job.id % 7 / 100)
        return "done"

    jobs.job(work)
    jobs.job("many")(work)
    limited.job("shared")(work)
    limited.job("urgent", critical=True)(work)

    @jobs.job(retry=fixed(0.1, attempts=5))
    def flaky(job: Job[Any]) -> str:
        log("began", job.id, job.attempt)
        if job.failures == 0:
            raise OSError("the first try fails")
        return "done"

    @jobs.job
    def direct(job: Job[Any]) -> Wait:
        log("began", job.id, job.attempt)
        return Wait(timeout=LONG)

    @jobs.job
    def charge(job: Job[Any]) -> Wait:
        log("began", job.id, job.attempt)
        return Wait(timeout=LONG)

    @charge.answered
    def look(job: Job[Any], answer: Any) -> Ok:
        log("looked", job.id, job.attempt)
        return Ok(answer.data)

    @jobs.job
    def silent(job: Job[Any]) -> Wait:
        log("began", job.id, job.attempt)
        return Wait(timeout=0.3, on_timeout=Failed("silence"))

    @jobs.job
    def unwanted(job: Job[Any]) -> None:
        log("began", job.id, job.attempt)
        time.sleep(0.2)

    @jobs.cron("* * * * *", missed="all", overlap=True)
    def minutely(job: Job[Any]) -> None:
        log("began", job.id, job.attempt)

    return app


class Client:
    def __init__(self, url: str, folder: Path) -> None:
        self.app = make_load(url, folder)
        self.log = Log(folder)
        self._stop = folder / "stop"
        self._chance = random.Random(1)
        self._owed: list[tuple[float, Callable[[], None]]] = []
        """What is to be done, and when, until it is acknowledged."""

    def run(self) -> None:
        number = 0
        while not self._stop.exists():
            number += 1
            (kind,) = self._chance.choices([*KINDS], [*KINDS.values()])
            self.add(kind, f"{kind}-{number}")
            self.pay()
            time.sleep(PAUSE)
        while self._owed:
            self.pay()
            time.sleep(PAUSE)

    def add(self, kind: str, data: str) -> None:
        queue = self.app.queues[kind in ("shared", "urgent")]
        options: dict[str, Any] = {"key": data} if kind in ("charge", "direct") else {}
        if kind == "shared":
            options = {"lane": self._chance.choice([*SHARES]), "throttle_factor": self._chance.choice([0.5, 1, 2])}
        some = [f"{data}-{n}" for n in range(IN_ONE_CALL)] if kind == "many" else [data]
        try:
            ids = queue.enqueue_many(kind, some) if kind == "many" else [queue.enqueue(kind, data, **options)]
        except StoreUnavailable:
            for one in some:
                self.log("unanswered", one)
            ids = []
        for job_id, one in zip(ids, some, strict=False):
            self.log("added", job_id, one)
        if kind in ("charge", "direct"):
            self._owe(lambda: self.answer(kind, data))
        if kind == "unwanted" and ids:
            self._owe(lambda: self.cancel(ids[0]))

    def answer(self, kind: str, data: str) -> None:
        self.app.answer("jobs", kind, data, {"for": data}, answer_id=data)
        self.log("answered", data)

    def cancel(self, job_id: int) -> None:
        try:
            self.app.cancel(job_id, "not wanted")
        except Conflict:
            return  # it has ended; or a cancel of which nothing was heard has ended it
        except NotFound:
            return  # it is lost: its line `added` tells
        self.log("cancelled", job_id)

    def _owe(self, what: Callable[[], None]) -> None:
        self._owed.append((time.monotonic() + self._chance.random() * 0.4, what))

    def pay(self) -> None:
        for one in [one for one in self._owed if one[0] <= time.monotonic()]:
            try:
                one[1]()
            except StoreUnavailable:
                return
            self._owed.remove(one)


if __name__ == "__main__":
    Client(sys.argv[1], Path(sys.argv[2])).run()
