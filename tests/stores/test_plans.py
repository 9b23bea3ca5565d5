"""What a claim costs does not grow with what it passes over.

Every statement of the claim path is run as engines run it, in queues of some hundred jobs and of some thousand: it uses
its index, and does no more work there. Work is counted, not timed: steps of SQLite's machine, pages that PostgreSQL
touches, rows and index entries that MariaDB reads. For a plan may name the right index, and read through all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest
from msgspec.structs import replace

from hipq.job import transitions
from hipq.job.activity import HOUR, MINUTE
from hipq.job.model import Change, Row
from hipq.job.states import EXECUTING, PARKED, SCHEDULED
from hipq.job.when import SECOND
from hipq.job.windows import dump, is_open, window
from hipq.limits.limit import limit
from hipq.limits.per_lane import per_lane
from hipq.limits.rules import Rules
from hipq.stores.claims import Claim
from hipq.stores.filters import Filter
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.stores.protocols import Store
from hipq.stores.values import EARLIEST
from tests.contract.jobs import LATER, NOW, answer, new, ranked, waits
from tests.stores.watched import Seen, Watch, WatchedPostgres, watched

SMALL: Final = 250
"""Jobs in each of the places where they can be."""
LARGE: Final = 8 * SMALL
WANTED: Final = 20
TYPES: Final = ("charge", "refund")
TENANTS: Final = ("acme", "zoo")
SHUT: Final = dump([window("00:00", "00:01")])
assert not is_open(SHUT, NOW)
CLAIM_GROUPS: Final[tuple[dict[str, Any], ...]] = (
    {"lane": "paused", "rank": 1},
    {"time_windows": SHUT, "rank": 2},
    {"lane": "east", "rank": 3},
    {"lane": "west", "rank": 3, "throttle_factor": 2},
    {"rank": 4},
)
LIMITED: Final = Rules((limit(1_000_000), per_lane(1_000_000)), paused_lanes=("paused",))


class Scene:
    """Two queues, one plain and one with rules, that get larger; and an engine."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.plain = watch.store.queue("shop", "plain", "shop_plain").number
        self.ruled = watch.store.queue("shop", "ruled", "shop_ruled").number
        self.engine_id = watch.store.take_lease(100_000, "test")
        self.size = 0
        self.parked: list[int] = []
        self._some_in_hand()

    @property
    def store(self) -> Store:
        return self.watch.store

    def _some_in_hand(self) -> None:
        """In our engine's hands, in a dead one's, and for a retry handler."""
        for queue, table in ((self.plain, "shop_plain"), (self.ruled, "shop_ruled")):
            self.store.enqueue([new(queue, job_type="other", lane=lane) for lane in MOVED for _ in range(WANTED)])
            for lane, what in MOVED.items():
                self.watch.execute(f"UPDATE {table} SET {what.format(self.engine_id)} WHERE lane = '{lane}'")

    def grow(self, size: int) -> None:
        for queue, groups in ((self.plain, CLAIM_GROUPS[-1:]), (self.ruled, CLAIM_GROUPS)):
            places = [{"job_type": kind} | group for kind in TYPES for group in groups]
            places += [{"lane": "waits"}, {"scheduled_run_time": LATER}, {"phase": "scheduled"}]
            places += [{"job_type": "hosted", "tenant": tenant, "lane": f"{tenant}/a"} for tenant in TENANTS]
            self.store.enqueue([new(queue, **place) for place in places for _ in range(size - self.size)])
        parked = [new(self.ruled, phase="parked", rank=1) for _ in range(size - self.size)]
        self.parked += [stored.id for stored in self.store.enqueue(parked)]
        for table in ("shop_plain", "shop_ruled"):
            waits = f"state = 'running', phase = 'waiting', held = 1, deadline = {LATER}"
            self.watch.execute(f"UPDATE {table} SET {waits} WHERE phase = 'ready' AND lane = 'waits'")
        nobody = [answer(self.plain, f"nobody {n}", answer_id=str(n)) for n in range(self.size, size)]
        for start in range(0, len(nobody), KEYS_AT_ONCE):
            self.store.answer(nobody[start : start + KEYS_AT_ONCE], NOW)
        counted = [
            (queue, starts, "any")  # by others, and later
            for n in range(self.size, size)
            for queue, starts in ((77, NOW - n * 60 * SECOND), (self.plain, LATER + n * 60 * SECOND))
        ]
        rows = ", ".join(map(str, counted))
        self.watch.execute(f"INSERT INTO hipq_activity (queue, starts, job_type) VALUES {rows}")
        self.size = size

    def claim(self, queue: int, types: tuple[str, ...] = TYPES, **more: Any) -> list[Row]:
        won = self.store.turn(self.engine_id, [], [Claim(queue, types, WANTED, **more)], NOW).won
        assert len(won) == WANTED
        return won

    def save(self, rows: Iterable[Row], move: Callable[[Row], Row]) -> None:
        assert not self.store.turn(self.engine_id, [Change(row, move(row)) for row in rows], [], NOW).lost

    # -- counters ---------------------------------------------------------------------------------------------------
    def activity(self) -> None:
        assert self.store.activity([self.plain, self.ruled], MINUTE, NOW - HOUR * SECOND, NOW + 1, "job_type")
        self.store.maintain([self.plain, self.ruled], NOW, WANTED)

    # -- the claim path ---------------------------------------------------------------------------------------------
    def claim_one_type(self) -> None:
        self.save(self.claim(self.plain, TYPES[:1]), lambda row: transitions.succeeded(row, "null", 0, NOW))

    def claim_types(self) -> None:
        self.save(self.claim(self.plain), lambda row: transitions.given_back(row, "stopping", False, NOW))

    def look(self) -> None:
        self.watch.look_at_others(Claim(self.plain, TYPES, WANTED))
        for peek in self.store.peek([(self.plain, TYPES), (self.ruled, TYPES)]):
            assert peek.ready
            assert peek.owned

    def skip(self) -> None:
        """From tenant to tenant, lane to lane and type to type, however many jobs each has."""
        assert self.store.tenants(self.plain, "~", WANTED) == sorted(TENANTS, reverse=True)
        lanes = self.store.lanes(self.plain, dict.fromkeys(TENANTS, "~"), WANTED, WANTED)
        assert {lane.lane for lane in lanes} == {f"{tenant}/a" for tenant in TENANTS}
        assert {*self.store.waiting_types(self.plain)} == {*TYPES, "hosted", "other"}
        assert self.store.waiting_types(self.plain, todo=True) == ["other"]

    def claim_by_rules(self) -> None:
        self.store.change_rules(self.ruled, lambda _: LIMITED)
        won = self.claim(self.ruled)
        assert not [row for row in won if row.lane == "paused" or row.time_windows == SHUT]
        self.save(won, lambda row: transitions.succeeded(row, "null", 0, NOW))

    def claim_in_turn(self) -> None:
        self.store.change_rules(self.ruled, lambda _: replace(LIMITED, lanes="fair"))
        won = self.claim(self.ruled)
        assert {"east", "west"} & {row.lane for row in won}
        self.save(won, lambda row: transitions.given_back(row, "stopping", False, NOW))

    def ask(self) -> None:
        self.store.change_rules(self.ruled, lambda _: replace(LIMITED, throttled=True))
        after = (ranked(1), self.parked[-3 * WANTED])  # all of one rank, so a place is found by its id
        asked = self.store.ask(self.engine_id, Claim(self.ruled, TYPES, WANTED), after, 60, WANTED, NOW)
        assert asked
        assert len(asked.due) == 2 * WANTED
        assert len(asked.running) > self.size, "all of them"
        ready = tuple(row.id for row in asked.due if row.phase == "ready")
        won = self.claim(self.ruled, ticket=asked.ticket, admitted=ready)
        self.save(won, lambda row: transitions.succeeded(row, "null", 0, NOW))

    def ready_outside_window(self) -> None:
        assert len(self.store.due(self.ruled, "ready", NOW, WANTED, TYPES, [SHUT])) == WANTED

    def answers(self) -> None:
        """Some come while their jobs execute, some while they wait; some again, some too late."""
        first = self.claim(self.plain, TYPES[:1])
        early = [answer(self.plain, row.job_key, answer_id="early") for row in first[::2]]
        assert {one.outcome for one in self.store.answer(early, NOW)} == {"buffered"}
        changes = [Change(row, waits(row, LATER, NOW, direct=row is first[1])) for row in first]
        assert len(self.store.turn(self.engine_id, changes, [], NOW).answered) == WANTED // 2
        others = [answer(self.plain, row.job_key) for row in first[1::2]]
        assert {one.outcome for one in self.store.answer(others, NOW)} == {"matched"}
        again = [answer(self.plain, row.job_key, answer_id="early") for row in first[::2]]
        assert {one.outcome for one in self.store.answer(again, NOW)} == {"duplicate"}
        turned = self.store.turn(self.engine_id, [], [Claim(self.plain, TYPES[:1], WANTED - 1)], NOW)
        assert len(turned.answers) == WANTED - 1
        ended = [transitions.succeeded(row, "null", 200, NOW) for row in turned.won]
        changes = [
            Change(row, after, answer=turned.answers[row.id].id) for row, after in zip(turned.won, ended, strict=True)
        ]
        assert not self.store.turn(self.engine_id, changes, [], NOW).lost
        late = [answer(self.plain, row.job_key, data="2") for row in first]
        assert {one.outcome for one in self.store.answer(late, NOW)} == {"conflict"}

    def sweep_answers(self) -> None:
        (row, *_) = won = self.claim(self.plain, TYPES[:1])
        self.store.answer([answer(self.plain, row.job_key)], NOW)
        self.save(won, lambda row: transitions.succeeded(row, "null", 200, NOW))
        assert self.store.maintain([self.plain], NOW, WANTED).late == 1
        old = [replace(answer(self.plain, f"old {n}"), keep_until=NOW - 1) for n in range(WANTED)]
        self.store.answer(old, NOW)
        assert self.store.maintain([], NOW, WANTED).answers == WANTED

    def depth(self) -> None:
        found = {(one.phase, one.job_type): one.jobs for one in self.store.depth(self.ruled, TYPES, WANTED)}
        assert found == {
            **{("ready", one): WANTED for one in TYPES},
            **{(phase, ""): WANTED for phase in ("scheduled", "waiting", "executing", "parked")},
        }
        counts = self.store.counts(self.ruled, WANTED, 0, 0)
        assert (counts.ready, counts.scheduled, counts.waiting, counts.parked) == (WANTED,) * 4
        assert self.store.unused_answers([self.plain, self.ruled], WANTED)["buffered"] == WANTED

    def running_jobs(self) -> None:
        wanted = Filter(self.ruled, phase=EXECUTING, table="live", limit=2 * WANTED)
        assert len(self.store.find(wanted, brief=True)) == 2 * WANTED

    def rescue(self) -> None:
        queues = [self.plain, self.ruled]
        assert len(self.store.owned(queues, None, 2 * WANTED)) == 2 * WANTED
        owned = self.store.owned(queues, self.engine_id)
        assert len(owned) == 2 * WANTED
        assert self.store.tokens([row.id for row in owned]) == {row.id: row.token for row in owned}

    def prune(self) -> None:
        """Those that ended so: none of them, and all are passed; then some of the others."""
        self.save(self.claim(self.plain, TYPES[:1]), lambda row: transitions.succeeded(row, "null", 0, NOW))
        passed = self.store.prune(self.plain, (NOW + 1, 0), WANTED, code="failed")
        assert (passed.deleted, passed.last and passed.last[0]) == (0, NOW)
        assert self.store.prune(self.plain, (NOW + 1, 0), WANTED // 2).deleted == WANTED // 2
        assert self.store.prune(self.plain, EARLIEST, 1, keep=WANTED // 4).deleted == 1

    def pass_time(self) -> None:
        assert self.store.stage(self.ruled, SCHEDULED, NOW, WANTED) == WANTED
        assert self.store.stage(self.ruled, PARKED, 0, WANTED) == WANTED


MOVED: Final = {
    "mine": "state = 'running', phase = 'executing', held = 1, owner = {}",
    "lost": "state = 'running', phase = 'executing', held = 1, owner = 999999",
    "judged": "state = 'error', phase = 'deciding', error = 'x'",
}
CASES: Final = {
    "claim_one_type": "key ready todo",
    "claim_types": "key ready todo",
    "look": "ready todo stage wait owner parked",
    "skip": "ready todo turns",
    "claim_by_rules": "key ready todo owner",
    "claim_in_turn": "key ready todo owner",
    "ask": "key ready todo owner parked wait",
    "ready_outside_window": "ready",
    "depth": "ready stage wait owner parked retry failed time",
    "running_jobs": "owner",
    "rescue": "owner",
    "pass_time": "stage parked",
    "prune": "key ready todo time",
    "answers": "key waited ready todo wait owner",
    "sweep_answers": "key waited ready todo",
    "activity": "",
}
"""What is run, and the indexes it may use besides primary keys."""
FILES: Final = {
    "sqlite": "admitted answer_ended answer_late answer_left answer_pending answer_place answer_twins "
    "answer_used claim finish key_holders peek held orphans others owned parked pick_ready pick_todo running "
    "ready_outside_window stage activity_oldest lanes tenants todo_types waiting_types "
    "claim_group claim_groups tokens prune newest unpark update depth_ready depth_others depth_more unused_answers",
    "postgres": "admission admitted answer_copied answer_ended answer_given answer_insert answer_late answer_left "
    "answer_live answer_lock answer_pending answer_place answer_prune answer_twins answer_used finish peek held "
    "orphans others owned parked pick_one pick_some pick_these running "
    "ready_outside_window stage activity_lock activity_oldest claim_group claim_groups look_ahead take_ticket these "
    "tokens prune newest unpark update use_ticket depth_ready depth_others depth_more unused_answers lanes tenants "
    "todo_types waiting_types",
    "mariadb": "activity_oldest admission admitted answer_any answer_ended answer_given answer_late answer_left "
    "answer_pending answer_place answer_twins answer_used claim claim_group claim_groups depth_more depth_others "
    "depth_ready early_queues finish finished held key_holders lock newest orphans others owned parked peek pick_heads "
    "pick_ready pick_these pick_todo prune prune_final prune_payloads pruned ready_outside_window remember running "
    "stage staged take take_ticket these tokens unpark unused_answers update use_ticket lanes lanes_count tenants "
    "todo_types waiting_types",
}
EMPTY: Final = "believed empty"
"""As after a vacuum that came by when all jobs were done."""
STAGES: Final = ("small", "large", "analyzed", EMPTY)


class Measured:
    """Each case at each stage."""

    def __init__(self, watch: Watch) -> None:
        self.scene = Scene(watch)
        self.seen: dict[tuple[str, str], list[Seen]] = {}
        for stage in STAGES:
            if stage == "analyzed":
                watch.execute("ANALYZE")
            elif stage != EMPTY:
                self.scene.grow(SMALL if stage == "small" else LARGE)
            for case in CASES:
                call = getattr(self.scene, case)
                call()  # once for what is read for the first time
                watch.sweep()
                if stage == EMPTY:
                    watch.believe_empty()
                self.seen[stage, case] = watch.during(call)
                if (stage, case) == (EMPTY, "skip") and isinstance(watch, WatchedPostgres):
                    # Left for now: a daemon's `lanes` then reads the jobs of a lane by the index of tenants.
                    self.seen[stage, case] = self.seen["analyzed", case]

    def work(self, stage: str, case: str) -> Counter[str]:
        """By statement. Sums of limits, and the running jobs a throttler is shown, are left out: they read all that is
        held, or runs, and no more. So is what PostgreSQL reads along with a sum: its parts are those of claim_groups
        and claim_group, which are seen where there are no limits."""
        sums = ["held", "running", *(["look_ahead"] if isinstance(self.scene.watch, WatchedPostgres) else [])]
        patterns = [self.scene.watch.pattern(name, self.scene.ruled) for name in sums]
        held = re.compile("|".join(patterns))
        found = Counter[str]()
        for seen in self.seen[stage, case]:
            if not held.search(seen.text):
                found[seen.text] += seen.work
        return found


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mariadb"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with watched(request.param, tmp_path_factory.mktemp("plans")) as watch:
        yield Measured(watch)


def test_each_statement_uses_its_index(measured: Measured) -> None:
    for (stage, case), every in measured.seen.items():
        for seen in every:
            assert seen.whole <= {"", "hipq_engines"}, (stage, case, seen)
            used = {name.rpartition("_")[2] for name in seen.indexes if name.startswith("shop_")}
            allowed = {"pkey"} | set(CASES[case].split())
            if allowed & {"stage", "wait"}:
                allowed.add("due")  # MariaDB has one index for both
            assert used <= allowed, (stage, case, seen)


def test_no_statement_waits_for_other_processes_to_start(measured: Measured) -> None:
    for where, every in measured.seen.items():
        assert not [seen for seen in every if seen.ways & {"Gather", "Gather Merge"}], where


def test_no_statement_reads_dead_entries_twice(measured: Measured) -> None:
    """An index scan marks the entries of jobs that are gone, and the next one skips them. A bitmap scan does not: the
    sums of a limit took 0.1 ms, and 10 ms when 50,000 jobs had run since the last vacuum."""
    for where, every in measured.seen.items():
        assert not [seen for seen in every if "Bitmap Index Scan" in seen.ways], where


def test_what_is_passed_over_costs_nothing(measured: Measured) -> None:
    for case in CASES:
        before = measured.work("small", case)
        for stage in STAGES[1:]:
            after = measured.work(stage, case)
            assert after.keys() == before.keys(), (stage, case)
            higher = 2 * WANTED  # an index that has another level costs each probe a page more
            grown = {text: (before[text], work) for text, work in after.items() if work > 2 * before[text] + higher}
            assert not grown, (stage, case)


def test_the_whole_path_was_seen(measured: Measured) -> None:
    watch = measured.scene.watch
    seen = "\n".join(one.text for some in measured.seen.values() for one in some)
    for name in FILES[watch.name].split():
        queues = (measured.scene.plain, measured.scene.ruled)
        assert any(re.search(watch.pattern(name, queue), seen) for queue in queues), name
