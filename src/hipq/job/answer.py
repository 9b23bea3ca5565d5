"""Answers: what arrives from outside, and the form in which the inbox keeps it. Pure: no I/O, no clock."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, Generic

import msgspec

from hipq.job import payload
from hipq.job.codec import ANY, Codec
from hipq.job.fault import ANSWER, Fault, FaultKind, clean
from hipq.job.model import Row, column
from hipq.job.typevars import A
from hipq.job.when import SECOND, seconds, to_datetime

if TYPE_CHECKING:
    from hashlib import blake2b

NEW: Final = "new"
BUFFERED: Final = "buffered"
MATCHED: Final = "matched"
PROGRESS: Final = "progress"
APPLIED: Final = "applied"
SETTLED: Final = "settled"
DUPLICATE: Final = "duplicate"
CONFLICT: Final = "conflict"
LATE: Final = "late"
UNREADABLE: Final = "unreadable"


class Answered(enum.StrEnum):
    """What became of an answer when it arrived: the word that its sender gets, and the name of an event."""

    MATCHED = MATCHED
    BUFFERED = BUFFERED
    DUPLICATE = DUPLICATE
    CONFLICT = CONFLICT
    LATE = LATE
    UNREADABLE = UNREADABLE


STATES: Final = {
    NEW: "another program inserted it in plain SQL, and no engine has matched it yet",
    BUFFERED: "kept until a job wants it",
    MATCHED: "its job has it, and has not looked at it yet",
    PROGRESS: "its job looked at it and goes on waiting",
    APPLIED: "its job looked at it and was to be tried again",
    SETTLED: "its job ended with it",
    DUPLICATE: "its job had ended with the same one, or was to be tried again because of it",
    CONFLICT: "its job had ended with another one",
    LATE: "its job had ended, was being cancelled, was past that attempt, or could not read it until its time was over",
    UNREADABLE: "its message does not say which job it is for, or cannot be read: its note says why",
}
"""The states of an answer in the inbox, and what each says."""
REPLAYABLE: Final = (NEW, BUFFERED, CONFLICT, LATE, UNREADABLE)
"""The states of answers that no job has used or is about to look at: such an answer may be delivered anew."""
UNUSED: Final = (*REPLAYABLE, DUPLICATE)
"""The states of answers that no job has used. There are few of these, as a rule, so they have an index of their own."""


class Keeping(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long a queue keeps answers, in seconds."""

    answer_ttl: float = 7 * 86_400.0
    """How long an answer is kept that no job has used (case 10)."""
    early_window: float = 3600.0
    """How long before its job is added an answer may arrive (case 2), and how long after the end of a job an answer to
    its key is still one to that job (case 8)."""
    answer_memory: float = 86_400.0
    """How long the ids of used answers are remembered, so that no answer is used twice (case 3)."""

    @classmethod
    def of(
        cls, answer_ttl: float | timedelta, early_window: float | timedelta, answer_memory: float | timedelta
    ) -> Keeping:
        """From what users give: seconds, or a timedelta."""
        return cls(
            seconds(answer_ttl, "answer_ttl", least=1),
            seconds(early_window, "early_window"),
            seconds(answer_memory, "answer_memory"),
        )


DEFAULT_KEEPING: Final = Keeping()


class NewAnswer(msgspec.Struct, frozen=True):
    """An answer to be delivered."""

    queue: int
    job_type: str
    job_key: str
    data: str
    arrived: int
    early_until: int
    """Jobs that are added after this moment do not get the answer; 0 = none does, for the answer names its job."""
    remember_until: int
    """The moment until which the answer's id is remembered, once the answer has been used."""
    keep_until: int
    """The moment until which the answer is kept while nobody uses it."""
    early: int
    """The early window of the queue in microseconds."""
    tenant: str = ""
    answer_id: str = ""
    """The sender's id of the answer, which tells it from others with the same key; "" = it has none."""
    error: bool = False
    attempt: int = 0
    """The attempt that the answer is for; 0 = the sender did not say."""
    fence: bool | None = None
    """Whether the job type refuses answers to other attempts; None = this program does not know the type."""
    job: int = 0
    """The id of the only job that the answer is for; 0 = any job that has the key."""
    unreadable: str = ""
    """Why the answer is for no job at all. It has no key in that case."""
    shows_late: bool = False
    """Whether this program's code has an `on_late`, which is shown the job if the answer is late."""

    @property
    def whole_key(self) -> tuple[int, str, str, str]:
        """What the job is found by. An unreadable answer has a value of its own, so that no other waits for its
        lock."""
        alone = f"\0{self.answer_id}\0{self.hash}" if self.unreadable else ""
        return (self.queue, self.tenant, self.job_type, self.job_key + alone)

    @property
    def hash(self) -> str:
        return body_hash(self.data, self.error)

    @property
    def twin(self) -> int:
        """A hash by which a repeated answer is found: of its key and its id. 0 = it has no id."""
        return number_of(*map(str, self.whole_key), self.answer_id) if self.answer_id else 0


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """An answer as the inbox keeps it, its columns in table order."""

    id: int
    queue: int
    tenant: str
    job_type: str
    job_key: str
    answer_id: str
    twin: int
    hash: str
    data: str
    error: int
    attempt: int
    state: str
    job: int
    arrived: int
    early_until: int
    remember_until: int
    keep_until: int
    copies: int
    note: str


KEPT: Final = Kept.__struct_fields__


def kept(new: NewAnswer, state: str, job: int, note: str = "") -> Kept:
    """The row of a new answer, to which the inbox gives its number."""
    until = new.remember_until if state == SETTLED else new.keep_until
    return Kept(
        0, new.queue, new.tenant, new.job_type, new.job_key, new.answer_id, new.twin, new.hash, new.data,
        int(new.error), new.attempt, state, job, new.arrived, new.early_until, new.remember_until, until, 1, note,
    )  # fmt: skip


class Answer(Generic[A]):
    """An answer as its handler sees it. `Answer[Paid]` as that handler's annotation types its data."""

    __slots__ = ("_codec", "_row")

    def __init__(self, kept: Kept, codec: Codec = ANY) -> None:
        self._row = kept
        self._codec = codec

    @property
    def data(self) -> A:
        found: A = self._codec.decode(self._row.data)
        return found

    id = column("id", int)
    """Its number in the inbox."""
    tenant = column("tenant", str)
    """The tenant it belongs to, in a daemon; "" = none."""
    answer_id = column("answer_id", str)
    """The id that the sender gave the answer; "" if it gave none."""
    key = column("job_key", str)
    type = column("job_type", str)

    @property
    def error(self) -> bool:
        """Whether it says that the work failed."""
        return bool(self._row.error)

    attempt = column("attempt", int)
    """The attempt it is an answer to; 0 if it does not say."""
    state = column("state", str)
    job = column("job", int)
    """The job it belongs to; 0 = none yet."""

    @property
    def arrived(self) -> datetime:
        return to_datetime(self._row.arrived)

    @property
    def keep_until(self) -> datetime:
        return to_datetime(self._row.keep_until)

    copies = column("copies", int)
    """How often the answer arrived."""
    note = column("note", str)

    def __repr__(self) -> str:
        return f"<Answer {self.id} to {self.type} {self.key!r} {self.state}>"


def number_of(*texts: str) -> int:
    """A number for texts: 64 bits of a hash, so that two hardly ever share one."""
    return int.from_bytes(_blake2b()("\0".join(texts).encode(), digest_size=8).digest(), "big", signed=True)


def body_hash(data: str, error: bool) -> str:
    """The hash of what a body says, not of how it is written: the order of keys does not count."""
    if "{" in data:
        data = msgspec.json.encode(msgspec.json.decode(data), order="sorted").decode()
    return _blake2b()(data.encode(), digest_size=16, key=b"error" if error else b"").hexdigest()


@cache
def _blake2b() -> type[blake2b]:
    """Imported once, since that costs more than a hash; and not before, since most programs deliver no answers."""
    from hashlib import blake2b

    return blake2b


def fault_of(answer: Kept) -> Fault:
    """The failure that an answer with `error` reports (case 11)."""
    said = payload.decode(answer.data)
    if said is None:
        return Fault(FaultKind.ERROR, "it says that the work failed", ANSWER, (ANSWER,))
    return Fault(FaultKind.ERROR, clean(said if isinstance(said, str) else answer.data), ANSWER, (ANSWER,))


def waited(before: Row, now: int) -> float:
    """Seconds from the claim of the job that sent the request to its answer, for a job that did not have the answer
    `before`."""
    from hipq.job.waiting import since  # most programs deliver no answers

    return max(now - (since(before) or before.update_time), 0) / SECOND
