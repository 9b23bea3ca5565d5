"""What a job's row remembers of its wait, in its column `wait`: what the answer may be, and what none will mean."""

from __future__ import annotations

import msgspec

from hipq.job.fault import Fault
from hipq.job.model import Row
from hipq.job.run_result import Chosen, Waits
from hipq.job.states import EXECUTING
from hipq.job.when import SECOND, later


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    until: int = 0
    """When its time is over, whatever signs of life there are."""
    heartbeat: float = 0.0
    """Seconds without a sign of life after which it is over before that; 0 = it need not give any."""
    on_timeout: Chosen | None = None
    """What no answer means; None = an error."""
    direct: bool = False
    """It has no answer handler: its answer is its result, and ends it where it comes."""
    calls_off: bool = False
    """It has a cancel handler, to be run when it is given up."""
    fence: bool = False
    """An answer that names another attempt is not for it."""
    life: int = 0
    """When its `lifetime` is over, if it has one: then it is not tried again."""
    tries: int = 0
    """How often its answer handler has failed with the answer it has; while it waits, it waits for the next try."""
    cause: Fault | None = None
    """Why it is being called off."""
    since: int = 0
    """When the job was claimed that sent the request."""

    def deadline(self, now: int) -> int:
        return min(self.until, later(now, self.heartbeat)) if self.heartbeat else self.until

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()


NOT_YET = Waiting()
_decoder = msgspec.json.Decoder(Waiting)


def load(text: str) -> Waiting:
    """From the column; '' = it has not waited yet."""
    return _decoder.decode(text) if text else NOT_YET


def since(row: Row) -> int:
    """When a job was claimed that sent its request, or is about to; 0 = it has never waited."""
    return row.deadline - round(row.timeout * SECOND) if row.phase == EXECUTING else load(row.wait).since


def begun(waits: Waits, latest: int, since: int, life: int, direct: bool, now: int) -> Waiting:
    """A wait that begins. `latest`: when the job's own time is over."""
    until = later(now, waits.timeout) if waits.timeout else latest
    return Waiting(until, waits.heartbeat, waits.on_timeout, direct, life=life, since=since)
