"""Looking along the ids for what no index has in their order: windows, and few that are sorted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hipq.job.states import PHASES
from hipq.stores.filters import Filter
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.jobs import NOW, PLACES, bring, claim, finish, new

WANTED: dict[str, dict[str, Any]] = {
    "all": {},
    "a type": {"job_type": "other"},
    "a lane": {"lane": "east"},
    "a key": {"job_key": "a-3"},
    "the beginning of a key": {"prefix": "a-1"},
    "a beginning with signs": {"prefix": "%_"},
    "a payload": {"carries": '"n":7'},
    "ended well": {"state": "final", "code": "ok"},
    "live": {"table": "live"},
    "live of a tenant": {"table": "live", "tenant": "acme"},
    "a tenant's key": {"tenant": "acme", "job_key": "a-3"},
    "what went wrong": {"code": "error"},
    "to be tried again": {"state": "retry"},
    "an error": {"error": "the bank"},
    "children": {"parent": 7},
    "children of a tenant": {"parent": 7, "tenant": "acme"},
    "a tenant's children with a key": {"parent": 7, "tenant": "acme", "job_key": "a-3"},
    "children that ended well": {"parent": 7, "code": "ok"},
    "children with an error": {"parent": 7, "error": "the bank"},
    "a time": {"since": NOW + 5, "before": NOW + 40},
    **{phase: {"phase": phase} for phases in PHASES.values() for phase in phases},
}


def _stocked(store: Store, engine: int, queue: int) -> None:
    """Jobs of all kinds, live and final by turns."""
    chance = random.Random(7)
    for n, place in enumerate(PLACES):
        bring(store, engine, queue, place, job_type=f"type-{n}")
    jobs = []
    for n in range(60):
        key, kind = f"a-{n % 20}" if n % 2 else f"%_{n}", chance.choice(["charge", "other"])
        tenant, lane = chance.choice(["", "acme"]), chance.choice(["", "east"])
        data, meta = f'{{"n":{n}}}', ('{"parent":7}', '{"parent":7,"then":"next"}', '{"parent":71}', "{}")[n % 4]
        jobs.append(
            new(queue, key, job_type=kind, job_data=data, tenant=tenant, lane=lane, create_time=NOW + n, meta=meta)
        )
    store.enqueue(jobs)
    for row in claim(store, engine, queue)[::2]:
        finish(store, row)


class TestWalking:
    @pytest.mark.parametrize("newest", [False, True])
    @pytest.mark.parametrize("what", WANTED)
    def test_windows_find_what_a_filter_finds(
        self, store: Store, engine: int, queue: QueueTables, what: str, newest: bool
    ) -> None:
        _stocked(store, engine, queue.number)
        wanted = Filter(queue.number, newest=newest, limit=1_000, **WANTED[what])
        everything = [row.id for row in store.find(wanted, brief=True)]
        assert everything == sorted(everything, reverse=newest)
        found, counted, window = list[int](), 0, wanted
        while until := store.reach(window, 7):
            window = window._replace(until=until)
            rows = store.find(window, brief=True)
            assert len(rows) <= 7 * len(wanted.parts)
            found += [row.id for row in rows]
            counted += store.count(window)
            window = window._replace(after=until, until=0)
        found += [row.id for row in store.find(window, brief=True)]
        assert found == everything
        assert counted + store.count(window) == len(everything)

    @pytest.mark.parametrize("newest", [False, True])
    @pytest.mark.parametrize("what", [name for name in WANTED if "tenant" not in name])
    def test_few_that_are_sorted_are_found_page_by_page(
        self, store: Store, engine: int, queue: QueueTables, what: str, newest: bool
    ) -> None:
        _stocked(store, engine, queue.number)
        wanted = Filter(queue.number, newest=newest, limit=1_000, **WANTED[what])
        everything = [row.id for row in store.find(wanted, brief=True)]
        few = wanted._replace(few=True, limit=4)
        found = list[int]()
        while rows := store.find(few._replace(after=found[-1] if found else 0)):
            found += [row.id for row in rows]
        assert found == everything
        assert store.count(few._replace(limit=1_000)) == len(everything)
        if len(found) > 3:
            some = few._replace(after=found[0], until=found[2])
            assert [row.id for row in store.find(some)] == found[1:3]
