"""How a daemon works, and what that means for jobs of every type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from hipq.job.retries import backoff
from hipq.job.spec import Spec
from hipq.sandbox import ContextSettings

QUEUE: Final = "jobs"
_FOR_EVER: Final = 1_000_000


class Options(msgspec.Struct, frozen=True):
    """How a daemon works."""

    db: str | None = None
    journal: str = "daemon.journal"
    journal_bytes: int = 1 << 30
    """What may wait in the journal while the store is away."""
    concurrency: int = 8
    """Batches that run at the same time, each in a context."""
    retry_after: float = 60.0
    """Seconds until a job that had an error is tried again; each time it is twice as long."""
    retry_most: float = 3600.0
    """Seconds until a job is tried again, at most."""
    give_up_after: float = 86_400.0
    """Seconds from when a job was added, after which its next error is final."""
    run_timeout: float = 3600.0
    """Seconds a handler may take for one job."""
    keep: float = 7 * 86_400.0
    """Seconds for which jobs that have ended are kept."""
    job_log: str = ""
    """The file that gets a line for each job that enters, runs, completes; "" = none."""
    contexts: ContextSettings = ContextSettings()


class AnySpecs(Mapping[str, Spec]):
    """Every type there may be: all have the same defaults, and their code is found when they run."""

    def __init__(self, options: Options) -> None:
        most = max(options.retry_most, options.retry_after)
        self._retry = backoff(_FOR_EVER, base=options.retry_after, cap=most)
        self._options = options
        self._known: dict[str, Spec] = {}

    def __getitem__(self, name: str) -> Spec:
        if name not in self._known:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[name] = Spec(
                name, QUEUE, fn=_elsewhere, retry=self._retry, run_timeout=self._options.run_timeout,
                lifetime=self._options.give_up_after,
            )  # fmt: skip
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _elsewhere(_job: object) -> None:
    raise AssertionError("the code of such jobs runs in contexts")
