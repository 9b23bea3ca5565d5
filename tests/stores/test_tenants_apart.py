"""What a tenant has is found without reading what others have: lists, live and final, by every filter.

Work is counted, not timed, as in `test_plans`: while others have some hundred jobs and some thousand, before and after
the tables are analyzed, and when the planner believes that they are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from hipq.job.model import LISTED
from hipq.stores.filters import Filter
from tests.stores.watched import Seen, Watch, watched

SMALL: Final = 200
LARGE: Final = 10 * SMALL
OWN: Final = 30
"""Jobs of the tenant that looks, live and final."""
EMPTY: Final = "believed empty"
STAGES: Final = ("small", "large", "analyzed", EMPTY)
FILTERS: Final[dict[str, dict[str, Any]]] = {
    "all": {},
    "next page": {"after": (OWN // 2) << 16, "limit": 10},
    "live": {"table": "live"},
    "final": {"state": "final"},
    "initial": {"state": "initial"},
    "nothing": {"state": "error"},
    "ready": {"phase": "ready"},
    "ready of a type": {"phase": "ready", "job_type": "shared"},
    "executing": {"phase": "executing"},
    "type": {"job_type": "shared"},
    "no such type": {"job_type": "other"},
    "code": {"code": "ok"},
    "no such code": {"code": "failed"},
    "key": {"job_key": "shared"},
    "key and type": {"job_key": "shared", "job_type": "shared"},
    "no such key": {"job_key": "other"},
    "newest": {"newest": True},
    "newest, next page": {"newest": True, "after": (OWN // 2) << 16, "limit": 10},
    "newest of a key": {"newest": True, "job_key": "shared"},
}
KEPT: Final = {"state": "initial", "phase": "ready", "code": "NONE"}
ENDED: Final = {"state": "final", "phase": "done", "code": "ok"}


class Scene:
    """Two tenants whose jobs have the same types and keys; what one of them has grows."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.queue = watch.store.queue("shop", "plain", "shop_plain").number
        self.others = 0
        self._add("own", 0, OWN)

    def grow(self, size: int) -> None:
        self._add("hog", 1_000_000 + self.others, size - self.others)
        self.others = size

    def _add(self, tenant: str, start: int, count: int) -> None:
        for table, what, first in (("shop_plain", KEPT, start), ("shop_plain_final", ENDED, start + 10_000_000)):
            more = f"SELECT CAST({first + 1} AS BIGINT) UNION ALL SELECT n + 1 FROM n WHERE n < {first + count}"
            numbers = f"WITH RECURSIVE n (n) AS ({more})"
            # all that ended had the same key, and of those that live each tenant has one with it
            key = "CASE WHEN n IN (1, 1000001) THEN 'shared' ELSE 'key' || n END" if what is KEPT else "'shared'"
            row = {
                "id": f"n * 65536 + {self.queue}", "tenant": f"'{tenant}'", "lane": f"'{tenant}/shared'",
                "job_type": "'shared'", "job_key": key, "job_data": "'null'",
                "rank": "CAST(1000000000000 + n AS TEXT)", "priority": "100", "throttle_factor": "1000",
                "held": "0", "time_windows": "'[]'", "timeout": "60", "scheduled_run_time": "n",
                "deadline": "0", "wait": "''", "attempt": "0", "failures": "0", "crashes": "0", "owner": "0",
                "token": "0", "error": "'NONE'", "exitcode": "0", "result": "''", "history": "'[]'",
                "create_time": "n", "update_time": "n", **{name: f"'{value}'" for name, value in what.items()},
            }  # fmt: skip
            into = f"INSERT INTO {table} ({', '.join(row)})"
            self.watch.execute(f"{into} {numbers} SELECT {', '.join(row.values())} FROM n")

    def look(self, name: str) -> list[int]:
        wanted: dict[str, Any] = {"limit": 100} | FILTERS[name]
        return [row.id for row in self.watch.store.find(Filter(self.queue, tenant="own", **wanted), brief=True)]


class Measured:
    def __init__(self, watch: Watch) -> None:
        self.seen: dict[tuple[str, str], list[Seen]] = {}
        self.found: dict[tuple[str, str], list[int]] = {}
        scene = Scene(watch)
        for stage in STAGES:
            if stage == "analyzed":
                watch.execute("ANALYZE")
            elif stage == EMPTY:
                watch.believe_empty()
            else:
                scene.grow(SMALL if stage == "small" else LARGE)
            for name in FILTERS:
                self.found[stage, name] = scene.look(name)  # once for what is read for the first time
                self.seen[stage, name] = watch.during(lambda name=name: scene.look(name))  # type: ignore[misc]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with watched(request.param, tmp_path_factory.mktemp("tenants")) as watch:
        yield Measured(watch)


@pytest.mark.parametrize("name", FILTERS)
def test_a_list_reads_only_what_is_the_tenants(measured: Measured, name: str) -> None:
    before = sum(seen.work for seen in measured.seen["small", name])
    for stage in STAGES[1:]:
        after = sum(seen.work for seen in measured.seen[stage, name])
        assert after <= 2 * before + 50, (stage, [seen.indexes for seen in measured.seen[stage, name]])
        assert all(seen.whole <= {""} for seen in measured.seen[stage, name]), stage


@pytest.mark.parametrize("name", FILTERS)
def test_whatever_the_plan_a_list_is_the_same(measured: Measured, name: str) -> None:
    first = measured.found["small", name]
    assert first == sorted(first, reverse="newest" in name)
    assert bool(first) == (name not in ("nothing", "executing", "no such type", "no such code", "no such key"))
    assert [measured.found[stage, name] for stage in STAGES] == [first] * len(STAGES)


@pytest.mark.parametrize("name", FILTERS)
def test_a_list_asks_for_nothing_that_may_be_large(measured: Measured, name: str) -> None:
    assert {"job_data", "result", "history"}.isdisjoint(LISTED)
    for seen in measured.seen["small", name]:
        assert not [part for part in ("job_data", "result", "history", "hipq_payloads") if part in seen.text]
