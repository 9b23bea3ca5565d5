"""What a step of the dashboard's list costs does not grow with the jobs around it: work is counted (see test_plans)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from hipq.job import transitions
from hipq.job.fault import Fault
from hipq.job.model import Change
from hipq.job.states import PARKED, READY, RETRY, SCHEDULED, WAITING
from hipq.stores.claims import Claim
from hipq.stores.filters import Filter
from tests.contract.jobs import LATER, NOW, new
from tests.stores.watched import Watch, watched

SMALL: Final = 600
LARGE: Final = 6 * SMALL
WINDOW: Final = 50
STAGES: Final = ("small", "large", "analyzed", "believed empty")
WALKED: Final[dict[str, dict[str, Any]]] = {
    "a type": {"job_type": "nothing"},
    "a lane": {"lane": "nothing"},
    "an end": {"state": "final", "code": "ok", "lane": "nothing"},
    "a text in the error": {"error": "nothing"},
    "failed with a text in the error": {"state": "final", "code": "failed", "error": "nothing"},
    "to be tried again": {"state": RETRY, "lane": "nothing"},
    "a text in the payload": {"carries": "nothing"},
    "a common key": {"job_key": "nightly", "lane": "nothing"},
    "a common beginning": {"prefix": "k-", "lane": "nothing"},
    "a phase": {"state": "initial", "phase": SCHEDULED, "lane": "nothing"},
    "of a tenant": {"tenant": "acme", "lane": "nothing"},
    "a job with very many children": {"parent": 7, "lane": "nothing"},
}
FEW: Final[dict[str, dict[str, Any]]] = {
    "waiting": {"phase": WAITING},
    "ready": {"phase": READY},
    "held back": {"phase": PARKED},
    "answered": {"phase": "answered"},
    "a key": {"job_key": "rare-1"},
    "a beginning": {"prefix": "rare-"},
}
RELATED: Final[dict[str, dict[str, Any]]] = {
    "children": {"parent": 9},
    "no child": {"parent": 8},
    "who has a key": {"job_key": "rare-1"},
    "who has a common beginning": {"prefix": "k-"},
}
EVERY: Final = [*WALKED, *FEW, *RELATED]


class Measured:
    """The work of each case at each stage."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.store, self.size = watch, watch.store, 0
        self.queue = watch.store.queue("shop", "plain", "shop_plain").number
        self.engine = watch.store.take_lease(100_000, "test")
        self.store.enqueue([new(self.queue, f"rare-{n}", job_type="rare", meta='{"parent":9}') for n in range(20)])
        for phase, more in ((WAITING, f"deadline = {LATER}, held = 1, state = 'running'"), (PARKED, "rank = '1'")):
            some = f"SELECT id FROM shop_plain WHERE phase = '{READY}' ORDER BY id LIMIT 5"
            watch.execute(f"UPDATE shop_plain SET phase = '{phase}', {more} WHERE id IN ({some})")
        self.work: dict[tuple[str, str, bool], int] = {}
        self.whole: dict[tuple[str, str, bool], frozenset[str]] = {}
        for stage in STAGES:
            if stage in ("small", "large"):
                self._grow(SMALL if stage == "small" else LARGE)
            elif stage == "analyzed":
                watch.execute("ANALYZE")
            self._measure(stage)

    def _grow(self, size: int) -> None:
        """A third ends well, a third fails, some are to be tried again; the others are scheduled."""
        jobs = []
        for n in range(self.size, size):
            tenant = "acme" if n % 2 else ""
            meta = f'{{"parent":{7 if n % 3 else 100 + n}}}'
            jobs.append(new(self.queue, f"k-{n}", tenant=tenant, scheduled_run_time=LATER, meta=meta))
            jobs.append(new(self.queue, f"r-{n}", job_type="other", tenant=tenant, meta=meta))
        self.size = size
        self.store.enqueue(jobs)
        failed = Fault("failed", "the card was refused")
        while won := self.store.turn(self.engine, [], [Claim(self.queue, ("other",), 300)], NOW).won:
            changes = []
            for row in won:
                if row.id >> 16 & 3 == 0:
                    after = transitions.succeeded(row, "1", 0, NOW)
                elif row.id >> 16 & 3 == 1:
                    after = transitions.given_back(row, "stopping", False, NOW)
                    after = transitions.changed(after, _Order(), NOW, at=LATER)
                else:
                    after = transitions.cancelled(row, str(failed), NOW)
                changes.append(Change(row, after))
            self.store.turn(self.engine, changes, [], NOW)

    def _measure(self, stage: str) -> None:
        for newest in (False, True):
            for name, fields in (WALKED | FEW | RELATED).items():
                wanted = Filter(self.queue, newest=newest, limit=WINDOW, few=name in FEW, **fields)
                ways = {**dict.fromkeys(FEW, self._few), **dict.fromkeys(RELATED, self._related)}
                call = ways.get(name, self._step)(wanted)
                call()
                if stage == STAGES[-1]:
                    self.watch.believe_empty()
                seen = self.watch.during(call)
                self.work[stage, name, newest] = sum(one.work for one in seen)
                self.whole[stage, name, newest] = frozenset().union(*(one.whole for one in seen))

    def _step(self, wanted: Filter) -> Callable[[], None]:
        def step() -> None:
            until = self.store.reach(wanted, WINDOW)
            self.store.find(wanted._replace(until=until), brief=True)
            self.store.count(wanted._replace(until=until))

        return step

    def _few(self, wanted: Filter) -> Callable[[], None]:
        def few() -> None:
            self.store.find(wanted, brief=True)
            self.store.count(wanted)

        return few

    def _related(self, wanted: Filter) -> Callable[[], None]:
        def related() -> None:
            self.store.having([self.queue], wanted)
            if wanted.parent:
                self.store.find(wanted, brief=True)
                self.store.count(wanted)

        return related


class _Order:
    def rank(self, scheduled: int, priority: int) -> str:  # noqa: ARG002
        return "1"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with watched(request.param, tmp_path_factory.mktemp("walking")) as watch:
        yield Measured(watch)


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_the_jobs_around_cost_nothing(measured: Measured, name: str, newest: bool) -> None:
    before = measured.work["small", name, newest]
    assert before > 0
    for stage in STAGES[1:]:
        assert measured.work[stage, name, newest] <= 2 * before + WINDOW, (stage, before)
