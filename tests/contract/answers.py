"""Answers: what comes is kept and finds its job, from both sides; what is used is used once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hipq.errors import Conflict, KeyTaken, NotFound
from hipq.job import transitions, wait_transitions
from hipq.job.answer import Kept
from hipq.job.model import Change, Row
from hipq.job.run_result import Rerun
from hipq.job.when import SECOND
from hipq.stores.claims import Claim, Turned
from hipq.stores.filters import AnswerFilter
from hipq.stores.inbox_transaction import KEYS_AT_ONCE, LOOKED_AT
from hipq.stores.protocols import Store
from hipq.stores.values import Delivered, QueueTables
from tests.contract.jobs import (
    FAULT,
    LATER,
    NOW,
    ORDER,
    TYPE,
    add,
    add_one,
    answer,
    bring,
    claim,
    finish,
    new,
    row_of,
    save,
    waits,
)

KEYS = ("123", "1e5", "true", "null", "", "it's", 'a "b"', "back\\slash", "ünï 🏦", " x", "%s", "$[0]", "k" * 500)


def bring_answer(store: Store, queue: QueueTables, key: str, **more: Any) -> Delivered:
    (delivered,) = store.answer([answer(queue.number, key, **more)], more.get("arrived", NOW))
    return delivered


def inbox(store: Store, queue: QueueTables, **wanted: Any) -> list[Kept]:
    return store.answers(AnswerFilter(queue.number, **wanted))


def states(store: Store, queue: QueueTables) -> list[tuple[str, str, int]]:
    return [(one.data, one.state, one.job) for one in inbox(store, queue)]


def begin_to_wait(store: Store, row: Row, *, key: str = "", now: int = NOW) -> Turned:
    after = waits(row, LATER, now, key=key)
    turned = store.turn(0, [Change(row, after)], [], now)
    assert not turned.lost
    assert row_of(store, row.id) == turned.answered.get(row.id, after)
    return turned


def look(store: Store, engine: int, queue: QueueTables) -> tuple[Row, Kept]:
    """Take the one job that has an answer to look at."""
    turned = store.turn(engine, [], [Claim(queue.number, (TYPE,), 1)], NOW)
    (row,) = turned.won
    return row, turned.answers[row.id]


class TestAnswers:
    @pytest.mark.parametrize(
        ("place", "outcome", "phase"),
        [
            ("initial ready", "buffered", "ready"),
            ("initial scheduled", "buffered", "scheduled"),
            ("executing", "buffered", "executing"),
            ("waiting", "matched", "answered"),
            ("answered", "buffered", "answered"),
            ("being looked at", "buffered", "answered"),
            ("cancelling", "matched", "answered"),
            ("deciding", "matched", "answered"),
            ("being decided", "matched", "answered"),
            ("retry ready", "matched", "answered"),
            ("retry scheduled", "matched", "answered"),
        ],
    )
    def test_what_becomes_of_it_goes_by_where_its_job_is(
        self, store: Store, engine: int, queue: QueueTables, place: str, outcome: str, phase: str
    ) -> None:
        row = bring(store, engine, queue.number, place, key="k", throttle_factor=3)
        delivered = bring_answer(store, queue, "k", data="2")
        assert (delivered.outcome, delivered.job) == (outcome, row.id)
        after = row_of(store, row.id)
        assert (after.phase, after.attempt) == (phase, row.attempt)
        assert after.held == row.held, "no limit is asked, and none given back"
        if outcome == "matched":
            assert delivered.change == Change(row, after, (), "matched")
            assert after == wait_transitions.answered(row, NOW)
        else:
            assert after == row
        assert inbox(store, queue)[-1].state == outcome

    @pytest.mark.parametrize("timed_out", [False, True])
    def test_where_no_code_is_to_look_at_it_the_job_ends_at_once(
        self, store: Store, engine: int, queue: QueueTables, timed_out: bool
    ) -> None:
        row = bring(store, engine, queue.number, "waiting directly", key="k")
        if timed_out:
            row = save(store, row, wait_transitions.timed_out(row, ORDER, NOW))
        assert bring_answer(store, queue, "k").outcome == "matched"
        ended = row_of(store, row.id)
        assert ended == wait_transitions.ended_by(row, '{"status":"paid"}', NOW)
        assert [one.state for one in inbox(store, queue)] == ["settled"]
        assert bring_answer(store, queue, "k").outcome == "duplicate"
        assert bring_answer(store, queue, "k", data="2").outcome == "conflict"
        assert row_of(store, row.id) == ended
        assert [(one.state, one.copies) for one in inbox(store, queue)] == [("settled", 2), ("conflict", 1)]

    @pytest.mark.parametrize("key", [key for key in KEYS if key])
    def test_any_key_is_matched_whole(self, store: Store, engine: int, queue: QueueTables, key: str) -> None:
        bring(store, engine, queue.number, "waiting", key=key)
        near = [key + "x", key.upper() if key.upper() != key else key.lower() + "_", f"{key} "]
        others = [answer(queue.number, other[-500:]) for other in near if other[-500:] != key]
        assert {one.outcome for one in store.answer(others, NOW)} <= {"buffered"}
        assert bring_answer(store, queue, key, answer_id=key).outcome == "matched"
        assert bring_answer(store, queue, key, answer_id=key).outcome == "duplicate"

    def test_all_four_parts_of_the_key_count(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        bring(store, engine, queue.number, "waiting", key="k", tenant="acme")
        for number, job_type, tenant in (
            (queue2.number, TYPE, "acme"), (queue.number, "refund", "acme"), (queue.number, TYPE, "other"),
            (queue.number, TYPE, ""),
        ):  # fmt: skip
            (came,) = store.answer([answer(number, "k", job_type=job_type, tenant=tenant)], NOW)
            assert (came.outcome, came.job) == ("buffered", 0)
        assert bring_answer(store, queue, "k", tenant="acme").outcome == "matched"

    def test_several_to_one_key_in_one_batch_are_taken_in_order(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        first, second = (bring(store, engine, queue.number, "waiting", key=key) for key in ("a", "b"))
        came = store.answer([answer(queue.number, key, data=data) for key, data in ("a1", "b1", "a2", "a1", "b2")], NOW)
        assert [one.outcome for one in came] == ["matched", "matched", "buffered", "buffered", "buffered"]
        assert [one.job for one in came] == [first.id, second.id, first.id, first.id, second.id]
        assert sorted(one.id for one in came) == [one.id for one in inbox(store, queue)]

    def test_a_thousand_at_once(self, store: Store, engine: int, queue: QueueTables) -> None:
        keys = [f"k{n}" for n in range(KEYS_AT_ONCE)]
        add(store, [new(queue.number, key) for key in keys])
        rows = claim(store, engine, queue.number, limit=len(keys))
        assert not store.turn(engine, [Change(row, waits(row, LATER, NOW)) for row in rows], [], NOW).lost
        came = store.answer([answer(queue.number, key) for key in reversed(keys)], NOW)
        assert {one.outcome for one in came} == {"matched"}
        assert [one.job for one in came] == [row.id for row in sorted(rows, key=lambda row: -int(row.job_key[1:]))]


class TestEarlyAnswers:
    @pytest.mark.parametrize("added_first", [True, False])
    def test_a_job_that_begins_to_wait_finds_what_came_before(
        self, store: Store, engine: int, queue: QueueTables, added_first: bool
    ) -> None:
        if added_first:
            add_one(store, new(queue.number, "k"))
        assert [bring_answer(store, queue, "k", data=data).outcome for data in "12"] == ["buffered"] * 2
        if not added_first:
            add_one(store, new(queue.number, "k"))
        (row,) = claim(store, engine, queue.number)
        turned = begin_to_wait(store, row)
        assert turned.answered[row.id] == replace(
            wait_transitions.answered(waits(row, LATER, NOW), NOW), token=row.token + 1
        )
        assert [(one.id, one.state) for one in turned.placed] == [(inbox(store, queue)[0].id, "matched")]
        assert states(store, queue) == [("1", "matched", row.id), ("2", "buffered", row.id)]
        assert look(store, engine, queue)[1].data == "1"

    @pytest.mark.parametrize("failing", ["errored", "rescued", "gave up", "refused"])
    def test_a_job_that_fails_finds_what_came_before(
        self, store: Store, engine: int, queue: QueueTables, failing: str
    ) -> None:
        """Unless its handler said that it can never succeed: that is an outcome."""
        add_one(store, new(queue.number, "k", throttle_factor=3))
        (row,) = claim(store, engine, queue.number)
        assert bring_answer(store, queue, "k", data="2").outcome == "buffered"
        errored = transitions.errored(row, FAULT, 500, NOW)
        gave_up = replace(transitions.gave_up(errored, FAULT, NOW), token=row.token + 1)
        change = {
            "errored": Change(row, errored),
            "rescued": Change(row, transitions.rescued(row, NOW)),
            "gave up": Change(row, gave_up, seeking=errored),
            "refused": Change(row, transitions.refused(row, FAULT, 400, NOW)),
        }[failing]
        after = change.after
        turned = store.turn(0, [change], [], NOW)
        found = row_of(store, row.id)
        if failing == "refused":
            assert (found, turned.answered) == (after, {})
            return
        assert found == turned.answered[row.id]
        assert (found.state, found.phase, found.token, found.held) == ("running", "answered", row.token + 1, 3000)
        assert found.failures == after.failures
        assert states(store, queue) == [("2", "matched", row.id)]

    @pytest.mark.parametrize("limit", ["early_until", "keep_until"])
    def test_what_came_too_long_before_is_left_alone(
        self, store: Store, engine: int, queue: QueueTables, limit: str
    ) -> None:
        bring_answer(store, queue, "k", **{limit: NOW - 1})
        assert begin_to_wait(store, bring(store, engine, queue.number, "executing", key="k")).answered == {}
        assert [one.job for one in inbox(store, queue)] == [0]

    def test_a_new_job_never_gets_what_was_for_the_one_before(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        """Before that was added, while it executed, and after its end."""
        bring_answer(store, queue, "k", data="1", arrived=NOW - 2)
        row = bring(store, engine, queue.number, "executing", key="k")
        bring_answer(store, queue, "k", data="2")
        finish(store, row, NOW + 1)
        late = bring_answer(store, queue, "k", data="3", arrived=NOW + 2)
        assert (late.outcome, late.job) == ("late", row.id)
        second = bring(store, engine, queue.number, "executing", key="k")
        assert begin_to_wait(store, second, now=NOW + 3).answered == {}
        assert bring_answer(store, queue, "k", data="4", arrived=NOW + 4).outcome == "matched"
        assert look(store, engine, queue)[1].data == "4"

    def test_long_after_a_job_ended_an_answer_is_early_again(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        finish(store, bring(store, engine, queue.number, "executing", key="k"))
        came = bring_answer(store, queue, "k", arrived=NOW + 5 * SECOND, early=4 * SECOND)
        assert (came.outcome, came.job) == ("buffered", 0)

    def test_a_change_that_is_lost_moves_no_answer(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "executing", key="k")
        bring_answer(store, queue, "k")
        stale = replace(row, token=row.token - 1)
        assert store.turn(engine, [Change(stale, waits(stale, LATER, NOW))], [], NOW).lost == {row.id}
        assert row_of(store, row.id) == row
        assert [one.state for one in inbox(store, queue)] == ["buffered"]


class TestUsedAnswers:
    def test_it_is_used_with_the_change_it_led_to(self, store: Store, engine: int, queue: QueueTables) -> None:
        bring(store, engine, queue.number, "answered", key="k")
        for data in ("1", "2", "2", "3"):
            bring_answer(store, queue, "k", data=data)
        row, first = look(store, engine, queue)
        progressed = wait_transitions.progressed(row, 0, NOW)
        turned = store.turn(engine, [Change(row, progressed, answer=first.id)], [], NOW)
        assert [one.state for one in inbox(store, queue)] == ["progress", "matched", "buffered", "buffered", "buffered"]
        assert row_of(store, row.id) == turned.answered[row.id]
        row, second = look(store, engine, queue)
        assert second.data == "1"
        turned = store.turn(engine, [Change(row, transitions.errored(row, FAULT, 500, NOW), answer=second.id)], [], NOW)
        assert inbox(store, queue)[1].state == "applied"
        assert bring_answer(store, queue, "k", data="4").outcome == "buffered", "it comes behind those that wait"
        row, third = look(store, engine, queue)
        assert third.data == "2"
        ended = transitions.succeeded(row, "null", 200, NOW)
        turned = store.turn(engine, [Change(row, ended, answer=third.id)], [], NOW)
        after = ["progress", "applied", "settled", "duplicate", "conflict", "conflict"]
        assert [one.state for one in inbox(store, queue)] == after
        assert [one.state for one in turned.placed] == after[3:]

    def test_without_its_answer_a_job_leaves_late_ones(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "answered", key="k")
        bring_answer(store, queue, "k", data="2")
        store.turn(0, [Change(row, transitions.cancelled(row, "by hand", NOW))], [], NOW)
        assert [one.state for one in inbox(store, queue)] == ["late", "late"]

    def test_what_a_job_that_never_waited_leaves_is_found_later(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        done, runs = (bring(store, engine, queue.number, "executing", key=key) for key in ("a", "b"))
        for key in ("a", "b", "c"):
            bring_answer(store, queue, key)
        finish(store, done)
        assert store.maintain([queue2.number], NOW, 10).late == 0
        assert store.maintain([queue2.number, queue.number], NOW, 10).late == 1
        assert store.maintain([queue2.number, queue.number], NOW, 10).late == 0
        assert [(one.state, one.job) for one in inbox(store, queue)] == [
            ("late", done.id), ("buffered", runs.id), ("buffered", 0)
        ]  # fmt: skip

    def test_an_id_is_known_while_it_is_remembered(self, store: Store, engine: int, queue: QueueTables) -> None:
        bring(store, engine, queue.number, "waiting directly", key="k")
        bring_answer(store, queue, "k", answer_id="m", remember_until=NOW + 2)
        again = {"answer_id": "m", "data": "2"}
        assert bring_answer(store, queue, "k", **again, arrived=NOW + 1).outcome == "duplicate"
        assert bring_answer(store, queue, "other", **again, arrived=NOW + 1).outcome == "buffered"
        assert bring_answer(store, queue, "k", **again, arrived=NOW + 2).outcome == "conflict"


class TestWaitKeys:
    """The key of a wait is one more key under which answers find the job; its own stays what it is."""

    def ask(self, store: Store, engine: int, queue: QueueTables, key: str = "own", wait_key: str = "ticket") -> Row:
        """A job that waits under a key of its wait."""
        row = bring(store, engine, queue.number, "executing", key=key)
        begin_to_wait(store, row, key=wait_key)
        return row_of(store, row.id)

    @pytest.mark.parametrize("key", ["own", "ticket"])
    @pytest.mark.parametrize("place", ["executing", "waiting", "deciding", "retry", "again", "final"])
    def test_an_answer_under_either_key_finds_the_job(
        self, store: Store, engine: int, queue: QueueTables, key: str, place: str
    ) -> None:
        """Before it waits; while it does; timed out, before the retry handler has spoken and after; while it is tried
        again; and after its end."""
        if place == "executing":
            row = bring(store, engine, queue.number, "executing", key="own")
            came = bring_answer(store, queue, key)
            assert (came.outcome, came.job) == ("buffered", row.id if key == "own" else 0)
            assert begin_to_wait(store, row, key="ticket").answered[row.id].phase == "answered"
            assert look(store, engine, queue)[1].job_key == key
            return
        row = self.ask(store, engine, queue)
        assert (row.job_key, row.wait_key) == ("own", "ticket")
        if place != "waiting":
            row = save(store, row, wait_transitions.timed_out(row, ORDER, NOW))
        if place in ("retry", "again"):
            row = save(store, row, transitions.retried(row, Rerun(FAULT, delay=0.0), ORDER, NOW))
        if place == "again":
            (row,) = claim(store, engine, queue.number)
        if place == "final":
            row = save(store, row, transitions.gave_up(row, FAULT, NOW))
        came = bring_answer(store, queue, key, answer_id="m")
        assert came.job == row.id
        assert came.outcome == {"again": "buffered", "final": "late"}.get(place, "matched")
        assert bring_answer(store, queue, key, answer_id="m").outcome == "duplicate"
        assert row_of(store, row.id).job_key == "own"
        if place == "again":
            assert begin_to_wait(store, row, key="another").answered, "what is the job's own is given to it in any case"

    @pytest.mark.parametrize("key", ["own", "ticket"])
    def test_after_its_end_an_answer_under_either_key_is_the_same_or_another(
        self, store: Store, engine: int, queue: QueueTables, key: str
    ) -> None:
        row = bring(store, engine, queue.number, "executing", key="own")
        ended = save(store, row, waits(row, LATER, NOW, direct=True, key="ticket"))
        assert bring_answer(store, queue, key, data="1").outcome == "matched"
        for data, outcome in (("1", "duplicate"), ("2", "conflict")):
            came = bring_answer(store, queue, key, data=data, arrived=NOW + 1)
            assert (came.outcome, came.job) == (outcome, ended.id)
        assert row_of(store, row.id).wait_key == "ticket"
        assert bring_answer(store, queue, "own" if key == "ticket" else "ticket", data="2").outcome == "conflict"

    def test_answers_under_both_keys_are_looked_at_in_the_order_they_came(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "executing", key="own")
        bring_answer(store, queue, "ticket", data="1")
        bring_answer(store, queue, "own", data="2")
        begin_to_wait(store, row, key="ticket")
        came = store.answer(
            [answer(queue.number, key, data=data) for key, data in (("ticket", "3"), ("own", "4"))], NOW
        )
        assert [one.outcome for one in came] == ["buffered", "buffered"]
        for data in ("1", "2", "3", "4"):
            found, given = look(store, engine, queue)
            assert given.data == data
            progressed = wait_transitions.progressed(found, 0, NOW)
            store.turn(engine, [Change(found, progressed, answer=given.id)], [], NOW)
        assert row_of(store, row.id).phase == "waiting"

    def test_one_batch_with_answers_under_both_keys_is_taken_in_order(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row, other = self.ask(store, engine, queue), self.ask(store, engine, queue, "own 2", "ticket 2")
        keys = ("ticket", "own", "own 2", "ticket", "ticket 2")
        came = store.answer([answer(queue.number, key, data=f'"{key}"') for key in keys], NOW)
        assert [one.outcome for one in came] == ["matched", "buffered", "matched", "buffered", "buffered"]
        assert [one.job for one in came] == [row.id, row.id, other.id, row.id, other.id]
        assert len(inbox(store, queue)) == len(keys)

    def test_a_page_full_of_answers_under_one_key_hides_none_under_the_other(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "executing", key="own")
        useless = [answer(queue.number, "ticket", data=str(n), attempt=7) for n in range(LOOKED_AT + 10)]
        store.answer(useless, NOW)
        bring_answer(store, queue, "own", data='"for it"')
        fenced = wait_transitions.agreed(waits(row, LATER, NOW, key="ticket"), True, False)
        assert store.turn(0, [Change(row, fenced)], [], NOW).answered[row.id].phase == "answered"
        assert look(store, engine, queue)[1].data == '"for it"'

    @pytest.mark.parametrize("again", [False, True])
    def test_the_next_wait_gives_the_key_up(self, store: Store, engine: int, queue: QueueTables, again: bool) -> None:
        """Unless it is an answer handler that lets the job wait anew: it is the same request's answer it waits for."""
        row = self.ask(store, engine, queue)
        if again:
            row = save(store, row, wait_transitions.timed_out(row, ORDER, NOW))
            row = save(store, row, transitions.retried(row, Rerun(FAULT, delay=0.0), ORDER, NOW))
            (row,) = claim(store, engine, queue.number)
        else:
            bring_answer(store, queue, "ticket")
            row, _ = look(store, engine, queue)
        begin_to_wait(store, row)
        assert row_of(store, row.id).wait_key == ("" if again else "ticket")
        assert bring_answer(store, queue, "ticket", data="2").outcome == ("buffered" if again else "matched")
        assert bring_answer(store, queue, "own", data="3").outcome == ("matched" if again else "buffered")

    def test_its_own_key_is_no_second_one(self, store: Store, engine: int, queue: QueueTables) -> None:
        assert self.ask(store, engine, queue, wait_key="own").wait_key == ""

    @pytest.mark.parametrize("held_as", ["own key", "wait key", "wait key in the same turn"])
    def test_a_key_that_another_live_job_has_is_refused(
        self, store: Store, engine: int, queue: QueueTables, held_as: str
    ) -> None:
        holder = bring(store, engine, queue.number, "executing", key="ticket" if held_as == "own key" else "first")
        row = bring(store, engine, queue.number, "executing", key="own")
        mine = Change(row, waits(row, LATER, NOW, key="ticket"))
        theirs = Change(holder, waits(holder, LATER, NOW, key="" if held_as == "own key" else "ticket"))
        if held_as == "wait key":
            assert not store.turn(0, [theirs], [], NOW).lost
        with pytest.raises(KeyTaken) as refused:
            store.turn(0, [theirs, mine] if held_as.endswith("turn") else [mine], [], NOW)
        assert refused.value.holders == {row.id: holder.id}
        assert row_of(store, row.id) == row, "nothing of the turn was done"

    def test_a_key_that_jobs_of_another_kind_have_is_free(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        """It is unique among live jobs of a tenant, a queue and a type; and free once its job has ended."""
        self.ask(store, engine, queue)
        for number, more in (
            (queue2.number, {}),
            (queue.number, {"job_type": "refund"}),
            (queue.number, {"tenant": "t"}),
        ):
            row = bring(store, engine, number, "executing", key="x", **more)
            assert not store.turn(0, [Change(row, waits(row, LATER, NOW, key="ticket"))], [], NOW).lost
        first = bring(store, engine, queue.number, "executing", key="own 2")
        begin_to_wait(store, first, key="ticket 2")
        ended = row_of(store, first.id)
        save(store, ended, transitions.cancelled(ended, "by hand", NOW))
        assert self.ask(store, engine, queue, "own 3", "ticket 2").wait_key == "ticket 2"

    def test_its_own_key_stays_taken_while_it_waits_under_another(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row = self.ask(store, engine, queue)
        (stored,) = store.enqueue([new(queue.number, "own")])
        assert (stored.id, stored.duplicate) == (row.id, True)

    def test_a_job_that_is_added_with_the_key_of_a_wait_is_whom_its_answers_find(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        """Adding takes no lock, so it cannot be refused. A job's own key finds that job in any case; when it has ended,
        answers find the one that waits again."""
        waiting = self.ask(store, engine, queue)
        added = bring(store, engine, queue.number, "waiting directly", key="ticket")
        came = bring_answer(store, queue, "ticket")
        assert (came.outcome, came.job) == ("matched", added.id)
        came = bring_answer(store, queue, "ticket", data="2")
        assert (came.outcome, came.job) == ("matched", waiting.id)

    def test_a_new_wait_never_gets_what_was_for_the_one_before_under_its_key(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        bring_answer(store, queue, "ticket", data="1", arrived=NOW - 2)
        row = bring(store, engine, queue.number, "executing", key="own")
        bring_answer(store, queue, "ticket", data="2", arrived=NOW - 1, early_until=NOW - 1)
        begin_to_wait(store, row, key="ticket")
        found, _ = look(store, engine, queue)
        save(store, found, transitions.cancelled(found, "by hand", NOW + 1))
        late = bring_answer(store, queue, "ticket", data="3", arrived=NOW + 2)
        assert (late.outcome, late.job) == ("late", row.id)
        second = bring(store, engine, queue.number, "executing", key="own 2")
        assert begin_to_wait(store, second, key="ticket", now=NOW + 3).answered == {}
        assert bring_answer(store, queue, "ticket", data="4", arrived=NOW + 4).job == second.id


class TestInbox:
    def test_filters_pages_and_counts(self, store: Store, queue: QueueTables, queue2: QueueTables) -> None:
        numbers = [bring_answer(store, queue, f"k{n}", data=str(n), answer_id=f"m{n % 3}").id for n in range(5)]
        bring_answer(store, queue, "k1", answer_id="m1")
        bring_answer(store, queue2, "k1", job_type="refund")
        assert [one.id for one in inbox(store, queue)] == numbers
        assert [one.id for one in inbox(store, queue, after=numbers[1], limit=2)] == numbers[2:4]
        assert [one.data for one in inbox(store, queue, job_key="k3")] == ["3"]
        assert [one.queue for one in inbox(store, queue2, job_type="refund")] == [queue2.number]
        assert inbox(store, queue, state="late") == inbox(store, queue, job=1) == []
        assert store.answers(AnswerFilter(id=numbers[4]))[0].job_key == "k4"
        assert store.count_answers(queue.number) == {"buffered": (5, 6)}
        bring_answer(store, queue, "k1", tenant="acme", answer_id="m1")
        bring_answer(store, queue, "k1", tenant="acme", answer_id="m1")
        assert store.count_answers(queue.number, "acme") == {"buffered": (1, 2)}
        assert store.count_answers(queue.number) == {"buffered": (6, 8)}
        assert store.count_answers(queue.number, "other") == store.count_answers(queue2.number, "acme") == {}
        (one, _) = inbox(store, queue, job_key="k1")
        assert (one.copies, one.answer_id, one.error, one.arrived) == (2, "m1", 0, NOW)

    def test_those_that_no_job_used_are_listed_newest_first_and_counted_up_to_a_limit(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        early = [bring_answer(store, queue, f"k{n}").id for n in range(5)]
        bring_answer(store, queue2, "k1", job_type="refund")
        bring(store, engine, queue.number, "waiting", key="used")
        assert bring_answer(store, queue, "used").outcome == "matched"
        newest = inbox(store, queue, state="buffered", newest=True, limit=2)
        assert [one.id for one in newest] == early[:-3:-1]
        older = inbox(store, queue, state="buffered", newest=True, after=newest[-1].id, limit=2)
        assert [one.id for one in older] == early[2:0:-1]
        assert inbox(store, queue, state="late", newest=True) == []
        both = [queue.number, queue2.number]
        assert {state: n for state, n in store.unused_answers(both, 100).items() if n} == {"buffered": 6}
        assert {state: n for state, n in store.unused_answers(both, 3).items() if n} == {"buffered": 4}
        assert not any(store.unused_answers([], 100).values())

    def test_one_that_comes_again_takes_its_own_place(self, store: Store, engine: int, queue: QueueTables) -> None:
        wrong = bring_answer(store, queue, "wrong", data="7", answer_id="m")
        row = bring(store, engine, queue.number, "waiting", key="right")
        (came,) = store.answer([answer(queue.number, "right", data="7", answer_id="m")], NOW, instead_of=wrong.id)
        assert (came.outcome, came.job) == ("matched", row.id)
        assert [(one.id, one.job_key) for one in inbox(store, queue)] == [(came.id, "right")]
        with pytest.raises(NotFound):
            store.answer([answer(queue.number, "right")], NOW, instead_of=wrong.id)
        with pytest.raises(Conflict, match="matched"):
            store.answer([answer(queue.number, "right")], NOW, instead_of=came.id)
        assert [(one.id, one.state) for one in inbox(store, queue)] == [(came.id, "matched")]

    def test_what_a_job_has_before_it_cannot_be_dropped(self, store: Store, engine: int, queue: QueueTables) -> None:
        bring(store, engine, queue.number, "answered", key="k")
        other = bring_answer(store, queue, "k2")
        (matched, _) = inbox(store, queue)
        assert [store.drop_answer(number) for number in (matched.id, other.id, other.id)] == [False, True, False]
        assert inbox(store, queue) == [matched]

    def test_prune_deletes_what_need_not_be_kept(self, store: Store, engine: int, queue: QueueTables) -> None:
        bring(store, engine, queue.number, "waiting directly", key="used")
        bring(store, engine, queue.number, "waiting", key="open", job_type="refund")
        times = {"remember_until": NOW + 1, "keep_until": NOW + 3}
        bring_answer(store, queue, "used", **times)
        bring_answer(store, queue, "open", job_type="refund", **times)
        bring_answer(store, queue, "nobody", **times)
        for now, left in ((NOW + 1, ["used", "open", "nobody"]), (NOW + 2, ["open", "nobody"]), (NOW + 4, ["open"])):
            while store.maintain([], now, 10).answers:  # others' too, where tests share a database
                pass
            assert [one.job_key for one in inbox(store, queue)] == left

    def test_which_of_some_jobs_have_ended(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        rows = [finish(store, bring(store, engine, one.number, "executing")) for one in (queue, queue2)]
        live = bring(store, engine, queue.number, "executing")
        found = store.ended([live.id, *(row.id for row in rows), live.id + (9 << 16)])
        assert sorted(found, key=lambda row: row.id) == sorted(rows, key=lambda row: row.id)
        assert store.ended([]) == []
