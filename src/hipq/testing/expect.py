"""What a test expects of jobs. Where it is not so, the error says what was found instead."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

import msgspec

from hipq.app import Hipq
from hipq.errors import HipqError, Invalid, NotFound, shown
from hipq.job.states import DONE, FINAL, PARKED, READY, SCHEDULED, WAITING, Code
from hipq.job.view import Job
from hipq.job.when import moment, seconds, to_datetime
from hipq.job_type import JobType
from hipq.jobs import JobFilters
from hipq.testing.clock import HandClock

ANYTHING: Final[Any] = object()
"""Told apart from None, which is data too."""
SHOWN: Final = 10
"""Jobs and entries of a history that a message lists, at most."""
PAGE: Final = 1_000


class Expectations:
    """A job is named by its id, or by its type and its key; of several that had the key, it is the last."""

    def __init__(self, apps: Sequence[Hipq], clock: HandClock) -> None:
        self._apps = apps
        self._clock = clock

    def job(self, which: int | JobType, key: str | None = None) -> Job[Any]:
        """A job as it is now."""
        __tracebackhide__ = True
        return self._find(which, key)[1]

    def assert_ok(
        self, which: int | JobType, key: str | None = None, *, result: Any = ANYTHING, attempts: int | None = None
    ) -> Job[Any]:
        """It has ended well."""
        __tracebackhide__ = True
        app, job = self._find(which, key)
        if job.state != FINAL or job.code != Code.OK:
            _fail(app, job, "has not ended ok")
        if result is not ANYTHING and job.result != plain(result):
            _fail(app, job, f"has the result {job.result!r}, not {result!r}")
        return _tried(app, job, attempts)

    def assert_failed(
        self, which: int | JobType, key: str | None = None, *, error: str = "", attempts: int | None = None
    ) -> Job[Any]:
        """It has ended without success: failed, or given up after an error. `error`: part of what its error says."""
        __tracebackhide__ = True
        app, job = self._find(which, key)
        if job.state != FINAL or job.code == Code.OK:
            _fail(app, job, "has not failed")
        _says(app, job, error)
        return _tried(app, job, attempts)

    def assert_waiting(
        self,
        which: int | JobType,
        key: str | None = None,
        *,
        until: datetime | timedelta | None = None,
        attempts: int | None = None,
    ) -> Job[Any]:
        """It has sent its request and waits for its answer. `until`: its time-out; a timedelta counts from now."""
        __tracebackhide__ = True
        app, job = self._find(which, key)
        if job.phase != WAITING:
            _fail(app, job, "does not wait for an answer")
        if until is not None and job.deadline != (wanted := self._moment(until, "until")):
            _fail(app, job, f"waits until {_clock(job.deadline)}, not {_clock(wanted)}")
        return _tried(app, job, attempts)

    def assert_scheduled(
        self,
        which: int | JobType,
        key: str | None = None,
        *,
        at: datetime | timedelta | None = None,
        within: float | timedelta = 0,
        error: str = "",
        attempts: int | None = None,
    ) -> Job[Any]:
        """It waits for its time, first or again. `at`: which time; a timedelta counts from now. `within`: how far from
        that it may be. `error`: part of what went wrong the last time."""
        __tracebackhide__ = True
        app, job = self._find(which, key)
        if job.phase != SCHEDULED:
            _fail(app, job, "is not scheduled")
        if at is not None:
            wanted, found = self._moment(at, "at"), job.scheduled_run_time
            if abs(found - wanted) > timedelta(seconds=seconds(within, "within")):
                _fail(app, job, f"is scheduled at {_clock(found)}, not {_clock(wanted)}")
        _says(app, job, error)
        return _tried(app, job, attempts)

    def assert_ready(self, which: int | JobType, key: str | None = None, *, why: str = "") -> Job[Any]:
        """It could start by its time, and something else holds it up. `why`: part of what `app.why` says of that, like
        "limit 2 is full"."""
        __tracebackhide__ = True
        app, job = self._find(which, key)
        if job.phase not in (READY, PARKED):
            _fail(app, job, "is not ready")
        if why not in _why(app, job):
            _fail(app, job, f"is not held up by {why!r}")
        return job

    def assert_enqueued(
        self, job_type: JobType, data: Any = ANYTHING, *, key: str | None = None, count: int | None = None
    ) -> list[Job[Any]]:
        """Such jobs were added, whatever became of them: `count` of them, or at least one. Of a mapping in their data
        only the names that `data` has are looked at."""
        __tracebackhide__ = True
        every, found = self._added(job_type, data, key)
        if (count is None and not found) or (count is not None and len(found) != count):
            wanted = "none was" if count is None else f"{len(found)} {_were(len(found))}, not {count},"
            raise AssertionError(f"of {_such(job_type, data, key)} {wanted} added; {_listed(job_type, every)}")
        return found

    def assert_not_enqueued(self, job_type: JobType, data: Any = ANYTHING, *, key: str | None = None) -> None:
        """No such job was added."""
        __tracebackhide__ = True
        _, found = self._added(job_type, data, key)
        if found:
            raise AssertionError(
                f"of {_such(job_type, data, key)} {len(found)} {_were(len(found))} added; {_listed(job_type, found)}"
            )

    def assert_empty(self) -> None:
        """All jobs have ended."""
        __tracebackhide__ = True
        every = [(app, job) for app in self._apps for queue in app.queues for job in _all(app, queue.name)]
        left = [(app, job) for app, job in every if job.phase != DONE]
        if left:
            title = f"{len(left)} {'job has' if len(left) == 1 else 'jobs have'} not ended:"
            raise AssertionError(
                _lines(title, [f"{_named(job)}: {_why(app, job)}" for app, job in left[:SHOWN]], len(left))
            )

    # -- finding ----------------------------------------------------------------------------------------------------
    def _find(self, which: int | JobType, key: str | None) -> tuple[Hipq, Job[Any]]:
        __tracebackhide__ = True
        if isinstance(which, JobType):
            if key is None:
                raise Invalid(f"say which {which.name} job: its key is missing")
            every, found = self._added(which, ANYTHING, key)
            if not found:
                raise AssertionError(f"there is no {which.name} job with the key {key!r}; {_listed(which, every)}")
            return which.queue.app, found[-1]
        if key is not None:
            raise Invalid("name a job by its id, or by its job type and its key: a key needs a job type")
        jobs = []
        for app in self._apps:
            try:
                jobs.append((app, app.job(which)))
            except NotFound:
                pass
        if len(jobs) > 1:
            raise Invalid(f"several apps have a job {which}: name it by its job type and its key")
        if not jobs:
            raise AssertionError(f"there is no job {which}")
        return jobs[0]

    def _added(self, job_type: JobType, data: Any, key: str | None) -> tuple[list[Job[Any]], list[Job[Any]]]:
        """All jobs of a type, and those of them that have such data and this key."""
        of_these(self._apps, job_type)
        every = _all(job_type.queue.app, job_type.queue.name, job_type.name)
        wanted = data if data is ANYTHING else plain(data)
        return every, [job for job in every if key in (None, job.key) and _contains(job.data, wanted)]

    def _moment(self, value: datetime | timedelta, name: str) -> datetime:
        if isinstance(value, timedelta):
            return to_datetime(self._clock.now()) + value
        return to_datetime(moment(value, name))


def of_these(apps: Sequence[Hipq], job_type: JobType) -> JobType:
    """A job type of one of these apps; else Invalid."""
    if not isinstance(job_type, JobType):
        raise Invalid(f"give a job type (a function under @queue.job), not {shown(job_type)}")
    if not any(job_type.queue.app is app for app in apps):
        raise Invalid(f"{job_type.name} belongs to {job_type.queue.app.name}, which is not in this harness")
    return job_type


def _all(app: Hipq, queue: str, job_type: str = "") -> list[Job[Any]]:
    found: list[Job[Any]] = []
    wanted: JobFilters = {"type": job_type} if job_type else {}
    while page := app.jobs(queue, oldest=True, after=found[-1].id if found else 0, limit=PAGE, **wanted):
        found += page
    return found


def plain(value: Any) -> Any:
    """What JSON has in the place of a value, as it is stored: of dataclasses, msgspec's Structs and Pydantic models,
    also inside of others."""
    return msgspec.to_builtins(value, enc_hook=_of_model)


def _of_model(value: Any) -> Any:
    if isinstance(value, int):  # a JobId
        return int(value)
    if hasattr(value, "__pydantic_serializer__"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise Invalid(f"jobs have no such data: {shown(value)} cannot be written as JSON")


def _contains(found: Any, wanted: Any) -> bool:
    if wanted is ANYTHING:
        return True
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(name in found and _contains(found[name], value) for name, value in wanted.items())
    return bool(found == wanted)


# -- saying -----------------------------------------------------------------------------------------------------------
def _tried(app: Hipq, job: Job[Any], attempts: int | None) -> Job[Any]:
    __tracebackhide__ = True
    if attempts is not None and job.attempt != attempts:
        _fail(app, job, f"was tried {_times(job.attempt)}, not {_times(attempts)}")
    return job


def _says(app: Hipq, job: Job[Any], error: str) -> None:
    __tracebackhide__ = True
    if error and error not in str(job.fault or ""):
        _fail(app, job, f"has an error that does not say {error!r}: {job.fault or 'it has none'}")


def _fail(app: Hipq, job: Job[Any], what: str) -> NoReturn:
    __tracebackhide__ = True
    lines = [f"{_named(job)} {what}: {_why(app, job)}"]
    if job.history:
        lines.append("what happened to it:")
        lines += [f"  {_entry(entry)}" for entry in job.history[-SHOWN:]]
    if job.fault and job.fault.traceback:
        lines += ["its last error:", *(f"  {line}" for line in job.fault.traceback.rstrip().splitlines())]
    raise AssertionError("\n  ".join(lines))


def _named(job: Job[Any]) -> str:
    return f"{job.type} {job.key!r}" if job.key != str(job.id) else f"{job.type} {job.id}"


def _why(app: Hipq, job: Job[Any]) -> str:
    try:
        return app.why(job.id).sentence
    except HipqError as error:  # what it says is worth more than what it hides
        return f"{job.state}, {job.phase} ({error})"


def _entry(entry: dict[str, Any]) -> str:
    more = [f"{name} {_clock(value)}" for name, value in entry.items() if name not in ("at", "event", "kind")]
    return f"{_clock(entry['at'])} {entry['event']}" + (f" ({', '.join(more)})" if more else "")


def _such(job_type: JobType, data: Any, key: str | None) -> str:
    parts = [] if key is None else [f"the key {key!r}"]
    parts += [] if data is ANYTHING else [f"data {data!r}"]
    return f"{job_type.name} jobs" + (f" with {' and '.join(parts)}" if parts else "")


def _listed(job_type: JobType, jobs: list[Job[Any]]) -> str:
    if not jobs:
        return f"there is no {job_type.name} job at all"
    first = [f"{_named(job)}, {job.data!r}, {job.code if job.phase == DONE else job.phase}" for job in jobs[:SHOWN]]
    return _lines("there are:", first, len(jobs))


def _lines(title: str, first: list[str], count: int) -> str:
    return "\n  ".join([title, *first, *([f"and {count - SHOWN} more"] if count > SHOWN else [])])


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _clock(value: Any) -> str:
    if not isinstance(value, datetime):
        return str(value)
    return value.isoformat(" ", "milliseconds" if value.microsecond else "seconds").replace("+00:00", "Z")
