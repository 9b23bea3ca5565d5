"""Which lane runs next: shares by weight, a bounded wait for everybody, nothing saved up. No store is needed for that;
tests/daemon/test_fairness.py has it with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import pytest

from hipq.daemon import scheduler as module
from hipq.daemon.scheduler import BATCH, FairShare


def run(scheduler: FairShare, waiting: dict[str, int], turns: int, room: int = BATCH) -> list[tuple[str, int]]:
    """So many turns of an engine with so much room: lanes in the order in which jobs of them started, and how many."""
    found: list[tuple[str, int]] = []
    for _ in range(turns):
        names, left, chosen = [lane for lane, count in waiting.items() if count], room, []
        while names and left > 0:
            lane = scheduler.select_jobtype_to_run(names, waiting)
            assert lane is not None
            names.remove(lane)
            count = min(left, BATCH, waiting[lane])
            chosen.append((lane, count))
            left -= count
        for lane, count in chosen:
            waiting[lane] -= count
            scheduler.jobs_started(lane, count)
            scheduler.jobs_stopped(lane, count)
        found += chosen
    return found


def by_tenant(started: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for lane, count in started:
        found[lane.partition("/")[0]] += count
    return found


def weights(given: Mapping[str, float]) -> Callable[[str], float]:
    return lambda tenant: given.get(tenant, 1.0)


@pytest.mark.parametrize(
    ("lanes", "room"),
    [
        ({"a": 1, "b": 1, "c": 1}, 1),
        ({"a": 1, "b": 1, "c": 1}, 8),
        ({"a": 40, "b": 1, "c": 3}, 8),
        ({"a": 40, "b": 1, "c": 3}, 100),
        ({"a": 40, "b": 2, "c": 5}, 250),
    ],
)
def test_tenants_get_shares_by_their_weight_however_many_lanes_they_have(lanes: dict[str, int], room: int) -> None:
    waiting = {f"{tenant}/{n}": 10**9 for tenant, count in lanes.items() for n in range(count)}
    started = by_tenant(run(FairShare(weights({"a": 1, "b": 2, "c": 5})), waiting, 4_000, room))
    whole = started.total()
    assert whole == 4_000 * room
    slack = 8 * BATCH + 16 * room
    for tenant, part in {"a": 1 / 8, "b": 2 / 8, "c": 5 / 8}.items():
        assert abs(started[tenant] - part * whole) <= slack + 0.02 * whole


def test_lanes_of_a_tenant_take_turns_and_each_waits_for_one_batch_of_every_other() -> None:
    waiting = {f"a/{n:03}": 10**9 for n in range(50)} | {"b/only": 10**9}
    served = [lane for lane, _ in run(FairShare(), waiting, 1_000, BATCH)]
    for lane in waiting:
        places = [place for place, one in enumerate(served) if one == lane]
        assert max(after - before for before, after in pairwise(places)) <= 2 * 50 + 1


def test_a_single_job_comes_next_whatever_others_have_had_and_have() -> None:
    scheduler = FairShare()
    waiting = {f"hog/{n}": 10**6 for n in range(1_000)}
    run(scheduler, waiting, 500)
    waiting["small/job"] = 1
    assert run(scheduler, waiting, 1)[0] == ("small/job", 1)


def test_a_low_weight_delays_but_is_never_kept_out() -> None:
    scheduler = FairShare(weights({"light": 0.0, "heavy": 1.0}))  # below what counts: a thousandth
    waiting = {"light/x": 10**6, "heavy/x": 10**9}
    started = by_tenant(run(scheduler, waiting, 30_000, 1))
    assert 10 <= started["light"] <= 100


def test_who_was_away_saves_nothing_up() -> None:
    scheduler = FairShare()
    run(scheduler, {"a/x": 10, "b/x": 10}, 1)
    run(scheduler, {"a/x": 10**6}, 1_000)  # b has nothing to do meanwhile
    started = by_tenant(run(scheduler, {"a/x": 10**6, "b/x": 10**6}, 100))
    assert abs(started["a"] - started["b"]) <= 2 * BATCH


def test_what_was_chosen_and_did_not_start_costs_its_tenant_nothing() -> None:
    scheduler = FairShare()
    run(scheduler, {"a/x": 1, "b/x": 1}, 1)
    for n in range(50):  # limits refuse it, or another engine was first
        assert scheduler.select_jobtype_to_run([f"a/lost{n}"], {f"a/lost{n}": 100}) == f"a/lost{n}"
    waiting = {"a/x": 1_000, "b/x": 1_000}
    started = by_tenant(run(scheduler, waiting, 10))
    assert abs(started["a"] - started["b"]) <= BATCH


def test_within_a_turn_what_was_chosen_counts_before_it_has_started() -> None:
    scheduler = FairShare()
    names = ["a/1", "a/2", "a/3", "b/1", "b/2", "b/3"]
    counts = dict.fromkeys(names, 10)
    chosen = []
    while names:
        lane = scheduler.select_jobtype_to_run(names, counts)
        assert lane is not None
        names.remove(lane)
        chosen.append(lane[0])
    assert chosen in (["a", "b"] * 3, ["b", "a"] * 3)


def test_a_list_that_comes_again_unchanged_is_another_turn() -> None:
    scheduler = FairShare()
    names = ["a/1", "a/2"]
    assert [scheduler.select_jobtype_to_run(names, {}) for _ in range(4)] == ["a/1", "a/2", "a/1", "a/2"]


def test_of_nothing_nothing_is_chosen() -> None:
    assert FairShare().select_jobtype_to_run([], {}) is None


def test_running_jobs_are_counted_and_no_more_than_started_stop() -> None:
    scheduler = FairShare()
    scheduler.jobs_started("a/x", 3)
    scheduler.jobs_started("a/y", 1)
    scheduler.jobs_stopped("a/x", 1)
    assert scheduler.running == {"a/x": 2, "a/y": 1}
    scheduler.jobs_stopped("a/x", 5)
    scheduler.jobs_stopped("a/z", 1)
    assert scheduler.running == {"a/y": 1}


def test_it_forgets_tenants_and_lanes_that_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TENANTS", 50)
    monkeypatch.setattr(module, "SERVED", 100)
    scheduler = FairShare()
    scheduler._most_accounts = 50
    for n in range(1_000):
        run(scheduler, {f"tenant{n}/job": 1, f"steady/version{n}": 1}, 1)
    assert len(scheduler._accounts) <= 102
    assert len(scheduler._served) <= 210
    assert scheduler.running == {}
    started = by_tenant(run(scheduler, {"steady/x": 10_000, "tenant999/x": 10_000}, 50))
    assert abs(started["steady"] - started["tenant999"]) <= 2 * BATCH
