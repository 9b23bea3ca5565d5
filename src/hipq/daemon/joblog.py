"""The log of jobs: one line of JSON for each that enters, runs and completes. Enough to work out, later and elsewhere,
how long jobs of a type waited and ran, what became of them, and what they cost. Payloads and results are not in it."""

from __future__ import annotations

import logging
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from typing import Any, Final

import msgspec

from hipq import files
from hipq.daemon import payloads
from hipq.errors import Invalid
from hipq.events import Event, Events
from hipq.job.event_names import RAN, JobEvent
from hipq.job.states import FINAL, NONE
from hipq.job.when import to_datetime

ENTERS: Final = (JobEvent.ADDED,)
RUNS: Final = (JobEvent.CLAIMED, JobEvent.WAITS, JobEvent.GIVEN_BACK, JobEvent.RESCUED)
COMPLETES: Final = (
    JobEvent.OK, JobEvent.FAILED, JobEvent.ERROR, JobEvent.AGAIN, JobEvent.GAVE_UP, JobEvent.CRASHED,
    JobEvent.TIMED_OUT, JobEvent.LIFETIME_OVER, JobEvent.CANCELLED, JobEvent.UNSTORABLE, JobEvent.ANSWERED,
)  # fmt: skip
SIZE: Final = 64 << 20
KEPT: Final = 4
"""Files that are kept beside the one that is written."""


_log = logging.getLogger("hipq")


class _Ran(msgspec.Struct):
    event: str
    at: int
    cost: float = 0.0


_history = msgspec.json.Decoder(list[_Ran])


class _File(RotatingFileHandler):
    """One that cannot be written, on a full disk, is said once: not with every job."""

    complained = False

    def _open(self) -> TextIOWrapper:
        opened = open(self.baseFilename, self.mode, encoding=self.encoding, opener=files.make)  # noqa: SIM115 - the handler closes it
        assert isinstance(opened, TextIOWrapper)
        return opened

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the library's name
        if not self.complained:
            self.complained = True
            _log.error("the log of jobs cannot be written: %s", sys.exc_info()[1])


class JobLog:
    def __init__(self, path: str, events: Events) -> None:
        try:
            self._file = _File(path, maxBytes=SIZE, backupCount=KEPT, encoding="utf-8")
        except OSError as error:
            raise Invalid(f"the log of jobs cannot be written to {path}: {error.strerror or error}") from None
        if mode := files.exposed(path):
            _log.warning("other users of this machine may open the log of jobs %s (%s): chmod 600", path, mode)
        events.subscribe(self._write, *ENTERS, *RUNS, *COMPLETES)

    def _write(self, event: Event) -> None:
        if event.job is not None:
            text = msgspec.json.encode(line(event)).decode()
            self._file.handle(logging.LogRecord("hipq.jobs", logging.INFO, "", 0, text, None, None))

    def close(self) -> None:
        self._file.close()


def line(event: Event) -> dict[str, Any]:
    """`waited`: seconds from when it could start to this event; `ran`: since its claim; `took`: since it was added."""
    job = event.job
    assert job is not None
    found: dict[str, Any] = {
        "at": to_datetime(event.at).isoformat(), "event": event.name, "id": str(job.id), "tenant": job.tenant,
        "type": job.job_type, "attempt": job.attempt, "state": job.state,
    }  # fmt: skip
    if event.name in ENTERS:
        return found | {"bytes": len(payloads.given(job.job_data))}
    if event.name == JobEvent.CLAIMED:
        return found | {"waited": _seconds(event.at - max(job.scheduled_run_time, job.create_time))}
    if job.code != NONE:
        found |= {"code": job.code, "exitcode": job.exitcode}
    entries = _history.decode(job.history)
    claimed = next((entry.at for entry in reversed(entries) if entry.event == JobEvent.CLAIMED), 0)
    if claimed:
        found["ran"] = _seconds(event.at - claimed)
    if cost := sum(entry.cost for entry in entries if entry.event == RAN):
        found["cost"] = round(cost, 6)
    if job.state == FINAL:
        found["took"] = _seconds(event.at - job.create_time)
    return found


def _seconds(microseconds: int) -> float:
    return round(microseconds / 1e6, 6)
