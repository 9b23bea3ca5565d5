"""Every error hipq raises, drawn once. The first line of each docstring is the sentence a user reads.

HipqError
├── Invalid            bad input: nothing was stored
│   └── DuplicateKey   a live job has this key already
├── NotFound           no such job
├── Conflict           the job moved on meanwhile
├── JobFailed          the job whose result was wanted has none
├── SchemaError        the database is not at a version this program can use
├── NameClash          two queues want the same table
└── StoreError         the database could not do its work
    ├── StoreUnavailable   it may be back: try again
    │   ├── StoreBusy      somebody else's transaction is in the way
    │   └── Moved          its jobs are in another one now
    ├── StoreRefused       it will never take this row
    │   └── KeyTaken       another live job has its key
    └── StoreBroken        it can no longer be trusted: stop
"""

from __future__ import annotations

from typing import Any


def shown(value: object) -> str:
    """A value as an error message shows it: short, whatever it is."""
    try:
        return f"{value!r:.60}"
    except Exception:  # an integer of 5,000 digits has no repr, and a user's class may have a broken one
        return f"a {type(value).__name__}"


class HipqError(Exception):
    """Something in hipq went wrong."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class Invalid(HipqError, ValueError):
    """This input cannot be accepted; nothing was stored."""


class DuplicateKey(Invalid):
    """A live job of this type has this key already; pass on_duplicate="return" to get its id."""

    def __init__(self, job_type: str, key: str, id: int) -> None:
        super().__init__(
            f"a live {job_type!r} job has the key {key!r} already (id {id}); "
            'pass on_duplicate="return" to get that id instead'
        )
        self.job_type, self.key, self.id = job_type, key, id


class NotFound(HipqError, LookupError):
    """There is no such job."""


class Conflict(HipqError):
    """The job moved on while it was being changed; look at it again."""


class JobFailed(HipqError):
    """The job ended without success, so it has no result."""

    def __init__(self, job: Any) -> None:
        super().__init__(f"job {job.id} ended with {job.code}: {job.fault or 'it has no result'}")
        self.job = job


class SchemaError(HipqError):
    """The database is not at a version this program can use; run `hipq migrate`."""


class NameClash(HipqError):
    """Another queue owns this table name; choose another name or naming strategy."""


class StoreError(HipqError):
    """The database could not do its work."""


class StoreUnavailable(StoreError):
    """The database cannot be reached right now; whether the last write was kept is not known."""


class StoreBusy(StoreUnavailable):
    """Another transaction holds a row this write needs."""


class Moved(StoreUnavailable):
    """The jobs of this database have moved to another."""

    def __init__(self, url: str, move: str) -> None:
        super().__init__("the jobs of this database have moved to another: `hipq doctor` says which")
        self.url, self.move = url, move


class StoreRefused(StoreError):
    """The database will not store this row."""


class KeyTaken(StoreRefused):
    """Another live job of this type has this key."""


class StoreBroken(StoreError):
    """A write to disk failed, so later commits cannot be trusted; restart the process and check the disk."""
