"""Saving what stopped: each move as the pure function says, under its token, with its children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from hipq.job import transitions, wait_transitions
from hipq.job.fault import Fault
from hipq.job.model import Change, Row
from hipq.job.run_result import Edits, Rerun
from hipq.job.states import FINAL, SCHEDULED
from hipq.job.waiting import Waiting
from hipq.job.when import SECOND
from hipq.stores.claims import Claim, Turned
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables, Stored
from tests.contract.database import Database, raw
from tests.contract.jobs import (
    FAULT,
    LATER,
    NOW,
    ORDER,
    TYPE,
    add,
    add_one,
    bring,
    claim,
    everything,
    new,
    row_of,
    save,
    waits,
)  # fmt: skip

Move = Callable[[Row, int], Row]
SIGNAL: Final = Fault("crash", "signal 11")
SOON: Final = NOW + 5 * SECOND


def one_write(before: Row, after: Row) -> Row:
    return replace(after, token=before.token + 1)


def edited(row: Row, data: str = '{"n":2}') -> Row:
    """As a retry handler leaves its copy."""
    return transitions.edited(row, Edits(data, priority=7, at=LATER))


LARGE: Final = f'"{"x" * 20_000}"'

MOVES: Final[list[tuple[str, str, Move]]] = [
    ("succeeded", "executing", lambda row, now: transitions.succeeded(row, '{"é":"🏦"}', 201, now)),
    ("succeeded", "waiting", lambda row, now: transitions.succeeded(row, "null", 200, now)),
    ("refused", "executing", lambda row, now: transitions.refused(row, FAULT, 404, now)),
    ("errored", "executing", lambda row, now: transitions.errored(row, FAULT, 500, now)),
    ("errored, to be retried", "executing", lambda row, now: transitions.errored(row, FAULT, 100, now)),
    ("timed out", "waiting", lambda row, now: wait_transitions.timed_out(row, ORDER, now)),
    ("gave up", "deciding", lambda row, now: transitions.gave_up(row, FAULT, now)),
    ("gave up", "being decided", lambda row, now: transitions.gave_up(row, FAULT, now)),
    ("retried at once", "deciding", lambda row, now: transitions.retried(row, Rerun(FAULT), ORDER, now)),
    ("retried later", "being decided", lambda row, now: transitions.retried(row, Rerun(FAULT, delay=60.5), ORDER, now)),
    ("retried, other data", "deciding", lambda r, now: transitions.retried(r, Rerun(FAULT, data="[1]"), ORDER, now)),
    ("asked again at once", "executing", lambda row, now: transitions.asked_again(row, Rerun(FAULT, 102), ORDER, now)),
    ("asked again later", "executing", lambda r, now: transitions.asked_again(r, Rerun(FAULT, at=LATER), ORDER, now)),
    ("outlived", "executing", lambda row, now: transitions.outlived(row, FAULT, 500, now)),
    ("waits", "executing", lambda row, now: waits(row, LATER, now)),
    ("waits under another key", "executing", lambda r, now: wait_transitions.waits(r, Waiting(LATER), now, f"{r.id}'")),
    ("waits again", "being looked at", lambda row, now: waits(row, LATER, now)),
    ("progressed", "being looked at", lambda row, now: wait_transitions.progressed(row, 7.5, now)),
    ("unread", "being looked at", lambda row, now: wait_transitions.unread(row, FAULT, now)),
    ("looks again", "waiting", wait_transitions.looks_again),
    ("answered", "waiting", wait_transitions.answered),
    ("answered", "retry scheduled", wait_transitions.answered),
    ("answered", "being decided", wait_transitions.answered),
    ("answered", "cancelling", wait_transitions.answered),
    ("ended by its answer", "waiting", lambda row, now: wait_transitions.ended_by(row, '{"é":"🏦"}', now)),
    ("ended by its answer", "retry ready", lambda row, now: wait_transitions.ended_by(row, "1", now)),
    ("cancel handler ended", "waiting", lambda row, now: wait_transitions.cancelling(row, FAULT, now)),
    ("call ended", "cancelling", lambda r, now: one_write(r, wait_transitions.cancel_handled(r, FAULT, ORDER, now))),
    ("given back", "being looked at", lambda row, now: transitions.given_back(row, "stopping", False, now)),
    ("rescued", "being looked at", transitions.rescued),
    ("given back, started", "executing", lambda row, now: transitions.given_back(row, "stopping", True, now)),
    ("given back, not started", "executing", lambda row, now: transitions.given_back(row, "stopping", False, now)),
    ("given back", "being decided", lambda row, now: transitions.given_back(row, "stopping", False, now)),
    ("rescued", "executing", transitions.rescued),
    ("rescued", "being decided", transitions.rescued),
    ("crashed", "executing", lambda r, now: transitions.crashed(r, SIGNAL, 500, now, has_retry_handler=True)),
    ("suspected", "executing", lambda row, now: transitions.suspected(row, SIGNAL, now)),
    ("crashed aside", "being decided", lambda r, now: transitions.crashed_aside(r, SIGNAL, now)),
    (
        "crashed aside for the last time",
        "being decided",
        lambda row, now: transitions.crashed_aside(replace(row, crashes=transitions.CRASHES_ALLOWED), FAULT, now),
    ),
    ("crashed over its answer", "being looked at", lambda r, now: wait_transitions.crashed(r, FAULT, 500, now, True)),
    ("retried, its copy changed", "deciding", lambda r, now: transitions.retried(edited(r), Rerun(FAULT), ORDER, now)),
    ("gave up with its copy changed", "deciding", lambda row, now: transitions.gave_up(edited(row), FAULT, now)),
    ("gave up, large copy", "being decided", lambda row, now: transitions.gave_up(edited(row, LARGE), FAULT, now)),
    *[
        ("cancelled", place, lambda row, now: transitions.cancelled(row, "by hand", now))
        for place in ("initial ready", "initial scheduled", "executing", "waiting", "answered", "cancelling",
                      "deciding", "retry ready", "retry scheduled")
    ],
    ("hurried", "initial scheduled", lambda row, now: transitions.run_now(row, ORDER, now)),
    ("hurried", "retry scheduled", lambda row, now: transitions.run_now(row, ORDER, now)),
]  # fmt: skip


def replace_placed(turned: Turned) -> Turned:
    """Without what became of answers that were left behind: that is in `answers`."""
    return replace(turned, placed=[])


def ok(row: Row, now: int = NOW) -> Change:
    return Change(row, transitions.succeeded(row, "null", 200, now))


def count(database: Database, table: str, job_id: int) -> int:
    ((found,),) = raw(database, f"SELECT count(*) FROM {table} WHERE id = {job_id}")
    return int(found)


class TestMoves:
    @pytest.mark.parametrize(("name", "place", "move"), MOVES, ids=[f"{name} - {place}" for name, place, _ in MOVES])
    def test_what_is_written_is_what_the_pure_move_says(
        self, store: Store, engine: int, queue: QueueTables, database: Database, name: str, place: str, move: Move
    ) -> None:
        before = bring(store, engine, queue.number, place, key=name, throttle_factor=3)
        after = move(before, SOON)
        turned = store.turn(engine, [Change(before, after)], [], SOON)
        assert replace_placed(turned) == Turned(frozenset(), [])
        assert row_of(store, before.id) == after
        assert after.token == before.token + 1
        final = after.state == FINAL
        assert count(database, queue.table, before.id) == (not final)
        assert count(database, f"{queue.table}_final", before.id) == final

    def test_every_move_in_one_batch(self, store: Store, engine: int, queue: QueueTables) -> None:
        changes = []
        for n, (_, place, move) in enumerate(MOVES):
            before = bring(store, engine, queue.number, place, job_type=f"type_{n}")
            changes.append(Change(before, move(before, SOON)))
        assert store.turn(engine, changes, [], SOON).lost == frozenset()
        assert everything(store, queue.number) == [change.after for change in changes]

    def test_a_job_walks_through_its_whole_life(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "executing")
        for n in range(1, 4):
            row = save(store, row, transitions.errored(row, FAULT, 500, NOW + n))
            (row,) = claim(store, engine, queue.number, now=NOW + n)
            row = save(store, row, transitions.retried(row, Rerun(FAULT), ORDER, NOW + n))
            (row,) = claim(store, engine, queue.number, now=NOW + n)
            assert (row.attempt, row.failures) == (n + 1, n)
        row = save(store, row, waits(row, LATER, SOON))
        row = save(store, row, transitions.succeeded(row, '"at last"', 200, SOON))
        assert row_of(store, row.id) == row


class TestTokens:
    def test_a_change_with_another_token_is_lost_and_writes_nothing(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        rows = [
            bring(store, engine, queue.number, place, job_type=f"type_{n}") for n, (_, place, _) in enumerate(MOVES)
        ]
        for row, (name, place, move) in zip(rows, MOVES, strict=True):
            for off in (-1, 1):
                stale = replace(row, token=row.token + off)
                change = Change(stale, move(stale, SOON), (new(queue.number, "child"),))
                assert store.turn(engine, [change], [], SOON).lost == {row.id}, f"{name} - {place}"
        assert everything(store, queue.number) == rows

    def test_the_second_of_two_changes_decided_on_the_same_row_is_lost(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "executing")
        after = save(store, row, waits(row, LATER, NOW))
        for late in (ok(row), Change(row, transitions.given_back(row, "stopping", False, SOON))):
            assert store.turn(engine, [late], [], SOON).lost == {row.id}
        assert row_of(store, row.id) == after

    @pytest.mark.parametrize("second", ["ends", "stays"])
    @pytest.mark.parametrize("first", ["ends", "stays"])
    def test_two_changes_of_one_row_in_one_batch_are_a_winner_and_a_loser(
        self, store: Store, engine: int, queue: QueueTables, first: str, second: str
    ) -> None:
        row = bring(store, engine, queue.number, "executing")
        rows = {"ends": transitions.succeeded(row, "null", 200, SOON), "stays": waits(row, LATER, SOON)}
        changes = [
            Change(row, rows[name], (new(queue.number, key),)) for name, key in ((first, "one"), (second, "two"))
        ]
        assert store.turn(engine, changes, [], SOON).lost == {row.id}
        assert row_of(store, row.id) == rows[first]
        assert [row.job_key for row in everything(store, queue.number)[1:]] == ["one"]

    def test_nothing_changes_a_final_job(self, store: Store, engine: int, queue: QueueTables) -> None:
        finals = []
        for n, (name, place, move) in enumerate(MOVES):
            row = bring(store, engine, queue.number, place, job_type=f"type_{n}")
            final = save(store, row, transitions.cancelled(row, "by hand", NOW))
            for before in (row, replace(row, token=final.token)):
                change = Change(before, move(before, SOON), (new(queue.number, "child"),))
                assert store.turn(engine, [change], [], SOON).lost == {row.id}, f"{name} - {place}"
            finals.append(final)
        assert store.stage(queue.number, SCHEDULED, LATER, 100) == 0
        assert claim(store, engine, queue.number, types=[row.job_type for row in finals]) == []
        assert everything(store, queue.number) == finals

    def test_a_change_of_a_job_that_is_not_there_is_lost(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "executing")
        stranger = replace(row, id=row.id + (1 << 40))
        assert store.turn(engine, [ok(stranger)], [], NOW).lost == {stranger.id}
        assert everything(store, queue.number) == [row]

    def test_lost_and_kept_changes_are_told_apart(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, [new(queue.number)] * 30)
        rows = claim(store, engine, queue.number)
        for row in rows[::3]:
            save(store, row, transitions.given_back(row, "stopping", True, NOW))
        turned = store.turn(engine, [ok(row) for row in rows], [], NOW)
        assert turned.lost == {row.id for row in rows[::3]}
        states = [row.state for row in everything(store, queue.number)]
        assert states == ["retry" if n % 3 == 0 else "final" for n in range(30)]


class TestTurn:
    def test_settling_and_claiming_are_one_call(self, store: Store, engine: int, queue: QueueTables) -> None:
        ids = add(store, [new(queue.number)] * 10)
        first = claim(store, engine, queue.number, limit=4)
        turned = store.turn(engine, [ok(row) for row in first], [Claim(queue.number, (TYPE,), 3)], SOON)
        assert turned.lost == frozenset()
        assert [row.id for row in turned.won] == ids[4:7]
        assert [row.state for row in everything(store, queue.number)] == ["final"] * 4 + ["running"] * 3 + [
            "initial"
        ] * 3

    def test_a_turn_with_nothing_to_do_does_nothing(self, store: Store, engine: int, queue: QueueTables) -> None:
        assert store.turn(engine, [], [], NOW) == Turned(frozenset(), [])
        assert store.turn(engine, [], [Claim(queue.number, (TYPE,), 10)], NOW) == Turned(frozenset(), [])

    def test_a_batch_over_several_queues(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        numbers = (queue.number, queue2.number)
        add(store, [new(numbers[n % 2]) for n in range(20)])
        rows = claim(store, engine, numbers[0]) + claim(store, engine, numbers[1])
        save(store, rows[0], waits(rows[0], LATER, NOW))
        save(store, rows[-1], waits(rows[-1], LATER, NOW))
        assert store.turn(engine, [ok(row) for row in rows], [], NOW).lost == {rows[0].id, rows[-1].id}
        for number in numbers:
            assert sorted(row.state for row in everything(store, number)) == ["final"] * 9 + ["running"]

    def test_five_hundred_rows_are_one_batch(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, [new(queue.number)] * 1000)
        rows = claim(store, engine, queue.number, limit=500)
        some = [Change(row, waits(row, LATER, SOON)) if n % 2 else ok(row, SOON) for n, row in enumerate(rows)]
        turned = store.turn(engine, some, [Claim(queue.number, (TYPE,), 500)], SOON)
        assert turned.lost == frozenset()
        assert len(turned.won) == 500
        assert everything(store, queue.number) == [change.after for change in some] + turned.won

    def test_without_a_live_lease_what_stopped_is_still_saved(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        add(store, [new(queue.number)] * 2)
        (row,) = claim(store, engine, queue.number, limit=1)
        store.renew_lease(engine, 0)
        turned = store.turn(engine, [ok(row)], [Claim(queue.number, (TYPE,), 10)], NOW)
        assert turned == Turned(frozenset(), [])
        assert [row.state for row in everything(store, queue.number)] == ["final", "initial"]


class TestChildren:
    def test_children_are_stored_with_their_parent(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "executing")
        children = (
            new(queue.number, "a"),
            new(queue.number, job_data='"' + "x" * 20_000 + '"'),
            new(queue2.number, "b", job_type="mail", scheduled_run_time=LATER),
        )
        change = Change(row, transitions.succeeded(row, "null", 200, NOW), children)
        turned = store.turn(engine, [change], [], NOW)
        stored = everything(store, queue.number)[1:] + everything(store, queue2.number)
        pairs = [(child, Stored(row.id)) for child, row in zip(children, stored, strict=True)]
        assert turned == Turned(frozenset(), [], pairs)
        assert [row.job_data for row in stored] == [child.job_data for child in children]
        assert [row.job_key for row in stored] == ["a", str(stored[1].id), "b"]
        assert [row.phase for row in stored] == ["ready", "ready", "scheduled"]

    @pytest.mark.parametrize(
        "move",
        [
            lambda row: waits(row, LATER, NOW),
            lambda row: transitions.errored(row, FAULT, 500, NOW),
            lambda row: transitions.asked_again(row, Rerun(FAULT), ORDER, NOW),
        ],
        ids=["waits", "errored", "asked again"],
    )
    def test_a_parent_that_stays_live_has_children_too(
        self, store: Store, engine: int, queue: QueueTables, move: Callable[[Row], Row]
    ) -> None:
        row = bring(store, engine, queue.number, "executing")
        store.turn(engine, [Change(row, move(row), (new(queue.number, "child"),))], [], NOW)
        assert [row.job_key for row in everything(store, queue.number)] == [row.job_key, "child"]

    def test_a_lost_parent_has_no_children(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, [new(queue.number)] * 2)
        lost, kept = claim(store, engine, queue.number)
        lost_now = save(store, lost, transitions.given_back(lost, "stopping", True, NOW))
        changes = [
            Change(row, transitions.succeeded(row, "null", 200, NOW), (new(queue.number, key),))
            for row, key in ((lost, "of the lost"), (kept, "of the kept"))
        ]
        turned = store.turn(engine, changes, [], NOW)
        assert turned.lost == {lost.id}
        assert [child.job_key for child, _ in turned.children] == ["of the kept"]
        assert [row.job_key for row in everything(store, queue.number)[2:]] == ["of the kept"]
        assert row_of(store, lost.id) == lost_now

    def test_a_child_with_a_live_jobs_key_is_left_out(self, store: Store, engine: int, queue: QueueTables) -> None:
        held = add_one(store, new(queue.number, "held", job_type="mail", job_data='"first"'))
        row = bring(store, engine, queue.number, "executing")
        children = [
            new(queue.number, key, job_type="mail", job_data='"second"') for key in ("held", "free", "free", "held")
        ]
        change = Change(row, transitions.succeeded(row, "null", 200, NOW), tuple(children))
        turned = store.turn(engine, [change], [], NOW)
        assert turned.lost == frozenset()
        assert [child for child, _ in turned.children] == children
        assert [stored.duplicate for _, stored in turned.children] == [True, False, True, True]
        assert [stored.id for _, stored in turned.children][::3] == [held, held]
        rows = [(row.job_key, row.job_data) for row in everything(store, queue.number) if row.job_type == "mail"]
        assert rows == [("held", '"first"'), ("free", '"second"')]
        assert row_of(store, held).token == 0
        assert row_of(store, row.id).state == FINAL

    def test_a_key_that_is_freed_in_the_same_turn_is_free_to_a_child(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        for parent, freed in ((queue.number, queue2.number), (queue2.number, queue.number)):
            first = bring(store, engine, parent, "executing", job_type="parent")
            second = bring(store, engine, freed, "executing", key="the key", job_type="holder")
            child = new(freed, "the key", job_type="holder")
            changes = [Change(first, transitions.succeeded(first, "null", 200, NOW), (child,)), ok(second)]
            ((_, stored),) = store.turn(engine, changes, [], NOW).children
            assert not stored.duplicate
            assert row_of(store, stored.id).job_key == "the key"

    def test_many_parents_have_many_children(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, [new(queue.number)] * 300)
        rows = claim(store, engine, queue.number, limit=300)
        changes = [
            Change(row, transitions.succeeded(row, "null", 200, NOW), (new(queue.number), new(queue.number, f"k{n}")))
            for n, row in enumerate(rows)
        ]
        store.turn(engine, changes, [], NOW)
        live = [row for row in everything(store, queue.number) if row.state != FINAL]
        assert len(live) == 600
