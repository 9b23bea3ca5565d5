"""The counters of what has happened: how all SQL stores write, read and fold them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hipq.errors import Invalid
from hipq.job.activity import COUNTERS, DAY, HOUR, MINUTE, Activity, beginning
from hipq.job.tally import Counts
from hipq.job.when import SECOND
from hipq.stores.sql.dialect import Dialect, Sql

PERIODS: Final = 2_000
"""The most periods that are read at once."""
STEPS: Final = 20
"""The most periods that one call folds."""
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "": ("0", "''"), "queue": ("queue", "''"), "job_type": ("queue", "job_type"),
}  # fmt: skip
PARTS: Final = {
    "counters": ", ".join(COUNTERS),
    "sums": ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in COUNTERS),
    "named_sums": ", ".join(f"sum({name}) AS {name}" for name in COUNTERS),
    "added": ", ".join(f"{name} = hipq_activity.{name} + excluded.{name}" for name in COUNTERS),
}
"""Lists of the counters, as parts of files of SQL."""


class Fold(NamedTuple):
    grain: int
    into: int
    """The seconds of the longer periods; 0 = there are none: the counters are deleted."""
    after: int
    """The age in seconds at which it is done."""


FOLDS: Final = (Fold(MINUTE, HOUR, 3 * HOUR), Fold(HOUR, DAY, 9 * DAY), Fold(DAY, 0, 400 * DAY))


def counted(counts: Counts) -> str:
    """The counters to add, as statements take them."""
    return msgspec.json.encode(
        [
            {"queue": queue, "starts": starts, "job_type": job_type}
            | {name: n for name, n in zip(COUNTERS, counters, strict=True) if n}
            for (queue, starts, job_type), counters in counts.items()
        ]
    ).decode()


class ActivityVerbs(Dialect):
    def activity(
        self, queues: Sequence[int], grain: int, since: int, until: int, by: Literal["", "queue", "job_type"] = ""
    ) -> list[Activity]:
        if grain < MINUTE or grain % MINUTE:
            raise Invalid(f"activity is counted by whole minutes, so not by {grain} seconds")
        since = beginning(since, grain)
        if until - since > PERIODS * grain * SECOND:
            raise Invalid(f"at most {PERIODS} periods are read at once: ask for longer ones")
        queue, job_type = _COLUMNS[by]
        query = self._statements.of("activity", 0, by_queue=queue, by_type=job_type)
        given = {"queues": list(queues), "period": grain * SECOND, "since": since, "until": until}
        with self._reading(long=True) as sql:
            found = sql.run(query, given)
        return [Activity(starts, queue, job_type, tuple(counts)) for starts, queue, job_type, *counts in found]

    def _fold_activity(self, queues: Sequence[int], now: int) -> bool:
        more = [self._folded(queues, fold, now) for fold in FOLDS]
        return any(more)

    def _folded(self, queues: Sequence[int], fold: Fold, now: int) -> bool:
        """Fold the oldest period of each queue that has one to fold. Returns whether there may be more."""
        length = fold.into or fold.grain
        before = beginning(now - fold.after * SECOND, length)
        with self._reading() as sql:
            found = sql.found("activity_oldest", queues=list(queues), grain=fold.grain, before=before)
        gone = 0
        for queue, starts in found[:STEPS]:
            since = beginning(starts, length)
            values = {"queue": queue, "grain": fold.grain, "since": since, "until": since + length * SECOND}
            gone += self._transaction(
                lambda sql, values=values: self._fold(sql, fold.into, values),  # type: ignore[misc]
                patient=False,
            )
        return gone > 0

    @abstractmethod
    def _fold(self, sql: Sql, into: int, values: dict[str, Any]) -> int:
        """In a transaction: add the counters of a queue's periods from `since` to `until` to those of the longer period
        that begins then, of `into` seconds, and delete them. Returns how many. No counter is lost or added twice,
        though others fold, or add to the counters, at the same moment."""
