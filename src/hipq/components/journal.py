"""The journal: jobs that were added are on disk before the store has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hipq.components.names import Callback, pair, told
from hipq.daemon import payloads
from hipq.errors import Invalid, shown
from hipq.job.model import numbered
from hipq.job.when import to_datetime
from hipq.journal import Batch, Reserved

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon

Done = Callable[[Exception | None], None]


class Journal:
    """Who reads it must be the only one: a daemon that was started takes in what is there by itself."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._journal = daemon.journal

    def write(self, jobtype: str, lines: Iterable[str | bytes], callback: Done | None = None) -> list[str]:
        """Add a job for each line, which ends with a newline; the ids that they will have. `callback` is called from
        another thread: with None when they are on disk, else with what went wrong. Without one, `wsync` says that."""
        tenant, name = pair(jobtype)
        some = tuple(_payload(line) for line in lines)
        if not some:
            return []
        daemon = self._daemon
        first = daemon.ids.take(tenant, len(some))
        self._journal.write(Batch(tenant, name, first, some, daemon.jobs.now()), callback or _nobody)
        return [str(numbered(first + n, daemon.queue.number)) for n in range(len(some))]

    def wsync(self, callback: Done | None = None) -> None:
        """Wait until what was written before is on disk, and raise what went wrong with it; or be told so."""
        self._journal.wsync(callback)

    def read_reserve(self, line_count: int, read_timeout_ms: float) -> Reserved | None:
        """The right to read about so many lines, whole batches; None if there are none. Lines that are not `rsync`ed in
        so many milliseconds go back."""
        return self._journal.read_reserve(line_count, read_timeout_ms / 1000)

    def read(self, token: Reserved, callback: Callback = None) -> list[bytes] | None:
        """The lines that were reserved, in the order they were written: `timestamp|tenant-jobtype|payload` and a
        newline. They are returned, or told to the callback."""
        return told(callback, lambda: [line for batch in self._journal.read(token) for line in _lines(batch)])

    def rsync(self, token: Reserved) -> None:
        """The lines are in the store: the journal forgets them."""
        self._journal.rsync(token)

    def ingest(self) -> int:
        """Store the jobs that are in the journal, as a daemon does that was started; how many there were."""
        return self._daemon.ingest()


def _payload(line: str | bytes) -> bytes:
    data = line.encode() if isinstance(line, str) else line
    if not data.endswith(b"\n") or b"\n" in data[:-1]:
        raise Invalid(f"a line has one newline, which ends it, not {shown(line)}")
    payloads.check(data[:-1])
    return data[:-1]


def _lines(batch: Batch) -> list[bytes]:
    stamp = to_datetime(batch.date).isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = f"{stamp}|{batch.tenant}-{batch.jobtype}|".encode()
    return [b"%b%b\n" % (head, payload) for payload in batch.payloads]


def _nobody(_error: Exception | None) -> None:
    """`wsync` tells what becomes of it."""
