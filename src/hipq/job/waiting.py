"""What a job's row remembers of its wait, in its column `wait`: how long, and what an answer, or none, means."""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from hipq.job.fault import Fault
from hipq.job.model import Row
from hipq.job.run_result import Chosen
from hipq.job.states import EXECUTING
from hipq.job.when import SECOND, later


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    until: int = 0
    """The time-out that no heartbeat moves."""
    heartbeat: float = 0.0
    """The most seconds between two heartbeats (case 13); 0 = none are asked for."""
    on_timeout: Chosen | None = None
    """The outcome if no answer comes (case 18); None = an error."""
    direct: bool = False
    """Whether the job has no answer handler, so that its answer is its result and ends it at once."""
    calls_off: bool = False
    """Whether the job has a cancel handler, to be run when the job is given up (case 17)."""
    fence: bool = False
    """Whether the job refuses answers that name another attempt (case 7)."""
    life: int = 0
    """The end of the job's `lifetime`, after which it is not tried again; 0 = it has none."""
    tries: int = 0
    """The failures of the answer handler with the answer that the job has (case 14). Unless 0, the job waits for the
    next try and not for an answer."""
    gives_up: int = 0
    """When the answer handler is no longer called again with that answer; 0 = it has not failed."""
    cause: Fault | None = None
    """Why the job is being cancelled, or why its answer handler is called again."""
    since: int = 0
    """When the job was claimed for the attempt that sent the request."""

    def deadline(self, now: int) -> int:
        return min(self.until, later(now, self.heartbeat)) if self.heartbeat else self.until

    def anew(self) -> Waiting:
        """The wait for another answer than the one at which the answer handler may have failed."""
        return replace(self, tries=0, gives_up=0, cause=None)

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()


NOT_YET = Waiting()
_decoder = msgspec.json.Decoder(Waiting)


@lru_cache(maxsize=64)  # jobs that were claimed together wait alike, and each is asked several times
def load(text: str) -> Waiting:
    """The wait from its column; '' = the job has not waited yet."""
    return _decoder.decode(text) if text else NOT_YET


def to_show(text: str) -> Waiting:
    """The wait from its column, to be shown: what another program has written, and nobody can read, says nothing."""
    try:
        return load(text)
    except msgspec.DecodeError:
        return NOT_YET


def since(row: Row) -> int:
    """When the job was claimed for the attempt that sends or has sent its request; 0 = it has never waited."""
    return row.deadline - round(row.timeout * SECOND) if row.phase == EXECUTING else load(row.wait).since
