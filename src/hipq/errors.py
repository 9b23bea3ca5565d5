"""Every error hipq raises, drawn once. The first line of each docstring is the sentence a user reads.

HipqError
├── Invalid            bad input: nothing was stored
│   ├── DuplicateKey   a live job has this key already
│   ├── JournalRefused this folder cannot be used as a journal
│   └── NoTable        a time further out than SQS delays, and no table to keep the message in
├── NotFound           no such job
├── Conflict           the job moved on meanwhile
├── JobFailed          the job whose result was wanted has none
├── SchemaError        the database is not at a version this program can use
├── NameClash          two queues want the same table
├── WrongTable         a DynamoDB table is not as the waiter needs it
├── TransportError     a message could not be sent, or read
│   └── TransportUnavailable   it may be possible later
├── Unauthorized       a daemon does not know this token
├── DaemonUnavailable  a daemon cannot be reached, or takes nothing right now
│   └── OverQuota          a quota of the tenant is used up: later
├── CannotRun          this machine lacks what a handler needs
├── NoRoomToRun        this machine has no room for another handler now
├── JournalError       the journal could not do its work
│   ├── JournalBehind      too much waits in it already: try again later
│   ├── JournalFull        the disk has no room: try again later
│   └── JournalBroken      a write to disk failed: stop
└── StoreError         the database could not do its work
    ├── StoreUnavailable   it may be back: try again
    │   ├── StoreBusy      somebody else's transaction is in the way
    │   ├── StoreDefect    it is there, and does not understand what it is told
    │   └── Moved          its jobs are in another one now
    ├── StoreRefused       it will never take this row
    │   └── KeyTaken       another live job has the key it wants to wait under
    └── StoreBroken        it can no longer be trusted: stop
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


def shown(value: object) -> str:
    """A value as an error message shows it: short, whatever it is."""
    try:
        return f"{value!r:.60}"
    except Exception:  # an integer of 5,000 digits has no repr, and a user's class may have a broken one
        return f"a {type(value).__name__}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that nobody knows: the one that may be meant."""
    from difflib import get_close_matches  # programs that make no mistakes need not load it

    near = get_close_matches(name[:100], list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


class HipqError(Exception):
    """Something in hipq went wrong."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class Invalid(HipqError, ValueError):
    """This input cannot be accepted; nothing was stored."""


class WrongConnection(Invalid):
    """`conn=` is open on another database than the one in which the job would be stored."""


class DuplicateKey(Invalid):
    """A live job of this type has this key already; pass on_duplicate="return" to get its id."""

    def __init__(self, job_type: str, key: str, job_id: int) -> None:
        super().__init__(
            f"a live {job_type!r} job has the key {key!r} already (id {job_id}); "
            'pass on_duplicate="return" to get that id instead'
        )
        self.job_type, self.key, self.id = job_type, key, job_id


class NoTable(Invalid):
    """SQS cannot delay a message that long, and there is no DynamoDB table to keep it in; nothing was sent."""


class WrongTable(HipqError):
    """This DynamoDB table is not as the waiter needs it; `hipq waiter check` says what is wrong."""


class NotFound(HipqError, LookupError):
    """There is no such job."""


class Conflict(HipqError):
    """The job moved on while it was being changed; look at it again."""


class Ended(Protocol):
    """A job that ended without success: a `Job`; of a client of a daemon, its `Result`."""

    @property
    def id(self) -> Any: ...
    @property
    def code(self) -> str: ...
    @property
    def exitcode(self) -> int: ...
    @property
    def fault(self) -> Any: ...


class JobFailed(HipqError):
    """The job ended without success, so it has no result."""

    def __init__(self, job: Ended) -> None:
        super().__init__(f"job {job.id} ended with {job.code}: {job.fault or 'it has no result'}")
        self.job: Ended = job
        """The job as it ended."""


class SchemaError(HipqError):
    """The database is not at a version this program can use; run `hipq migrate`."""

    def __init__(self, message: str = "", *, is_empty: bool = False) -> None:
        super().__init__(message)
        self.is_empty = is_empty
        """It has no tables of hipq's at all."""


class NameClash(HipqError):
    """Another queue owns this table name; choose another queue name, or another table_naming."""


class TransportError(HipqError):
    """A message could not be sent, or read."""


class TransportUnavailable(TransportError):
    """The other side cannot be reached right now; whether the last message was sent is not known."""


class Unauthorized(HipqError):
    """The daemon does not know this token: it was revoked, or is another daemon's."""


class DaemonUnavailable(HipqError):
    """The daemon cannot be reached right now; whether it has done what was asked last is not known."""


class OverQuota(DaemonUnavailable):
    """A quota of this tenant is used up; try again later."""

    def __init__(self, message: str = "", retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class JournalRefused(Invalid):
    """This folder cannot be used as a journal."""


class JournalError(HipqError):
    """The journal could not do its work."""


class JournalBehind(JournalError):
    """Too many jobs in the journal wait for the database; try again later."""


class JournalFull(JournalError):
    """There is no room on the disk for the journal; nothing was kept, try again later."""


class JournalBroken(JournalError):
    """A write of the journal to disk failed, so nothing is accepted any more; restart, and check the disk."""


class CannotRun(HipqError):
    """This handler cannot be run on this machine."""


class NoRoomToRun(HipqError):
    """This machine has no descriptors, processes or memory left for another handler at this moment."""


class StoreError(HipqError):
    """The database could not do its work."""


class StoreUnavailable(StoreError):
    """The database cannot be reached right now; whether the last write was kept is not known."""


class ShardAway(StoreUnavailable):
    """The shard to which a job belongs is away: none of the jobs was stored, in whatever shard."""


class StoreBusy(StoreUnavailable):
    """Another transaction holds a row this write needs."""


class StoreDefect(StoreUnavailable):
    """The database does not understand a statement: a defect of hipq's, and no outage; please report it."""


class Moved(StoreUnavailable):
    """The jobs of this database have moved to another."""

    def __init__(self, url: str, move: str) -> None:
        super().__init__("the jobs of this database have moved to another: `hipq doctor` says which")
        self.url, self.move = url, move


class StoreRefused(StoreError):
    """The database will not store this row."""


class KeyTaken(StoreRefused):
    """Another live job of this type has the key under which a job wants to wait."""

    def __init__(self, holders: Mapping[int, int]) -> None:
        super().__init__()
        self.holders = holders
        """By the id of each job that wants such a key, the id of the job that has it."""


class StoreBroken(StoreError):
    """A write to disk failed, so later commits cannot be trusted; restart the process and check the disk."""
