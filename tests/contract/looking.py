"""Looking at jobs: one by id, many by filter, what there is to do, what is overdue, what is old."""

from __future__ import annotations

from typing import Any

import pytest

from hipq.job import transitions
from hipq.job.fault import Fault
from hipq.job.model import LISTED, Brief, Row
from hipq.job.run_result import Rerun
from hipq.job.states import SCHEDULED, WAITING
from hipq.job.when import SECOND
from hipq.stores.claims import Peek
from hipq.stores.filters import Filter
from hipq.stores.protocols import Store
from hipq.stores.values import Counted, Counts, QueueTables
from hipq.testing.clock import HandClock
from tests.contract.database import Database
from tests.contract.jobs import (
    FAULT,
    LATER,
    NOW,
    ORDER,
    PLACES,
    TYPE,
    add,
    add_one,
    bring,
    claim,
    everything,
    finish,
    new,
    row_of,
    save,
    waits,
)  # fmt: skip


def _brief(row: Row) -> Brief:
    return Brief(*(getattr(row, name) for name in LISTED))


class TestGet:
    @pytest.mark.parametrize("place", PLACES)
    def test_a_live_job_is_found(self, store: Store, other: Store, engine: int, queue: QueueTables, place: str) -> None:
        row = bring(store, engine, queue.number, place)
        assert store.get(row.id) == other.get(row.id) == row

    def test_a_final_job_is_found(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = finish(store, bring(store, engine, queue.number, "executing"))
        assert store.get(row.id) == row

    def test_an_id_nobody_has_finds_nothing(self, store: Store, queue: QueueTables) -> None:
        job_id = add_one(store, new(queue.number))
        for unknown in (job_id + (1 << 16), job_id + (1 << 60), 0, -job_id, queue.number):
            assert store.get(unknown) is None

    def test_an_id_of_a_queue_nobody_has_finds_nothing(self, store: Store, queue: QueueTables) -> None:
        job_id = add_one(store, new(queue.number))
        assert store.get(job_id - queue.number + 65_535) is None

    def test_an_id_beyond_64_bits_finds_nothing(self, store: Store, queue: QueueTables) -> None:
        assert store.get((1 << 80) + queue.number) is None
        assert store.get(-(1 << 80) + queue.number) is None


class TestDepth:
    def test_each_phase_is_counted_up_to_a_limit_with_its_first_job(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        nothing = store.depth(queue.number, [TYPE, "other"], 10)
        assert [(one.phase, one.job_type, one.jobs, one.due) for one in nothing] == [
            ("ready", TYPE, 0, 0), ("ready", "other", 0, 0), ("scheduled", "", 0, 0), ("waiting", "", 0, 0),
            ("executing", "", 0, 0), ("parked", "", 0, 0),
        ]  # fmt: skip
        for place in ("executing", "waiting"):
            bring(store, engine, queue.number, place)
        add(store, [new(queue.number, rank=n, scheduled_run_time=NOW - 7 + n) for n in range(5)])
        add(store, [new(queue.number, job_type="other", rank=1, scheduled_run_time=NOW - 9)])
        add(store, [new(queue.number, phase=SCHEDULED, scheduled_run_time=LATER + n) for n in range(3)])
        found = {
            (one.phase, one.job_type): (one.jobs, one.due) for one in store.depth(queue.number, [TYPE, "other"], 2)
        }
        assert found["ready", TYPE] == (2, NOW - 7)
        assert found["ready", "other"] == (1, NOW - 9)
        assert found["scheduled", ""] == (2, LATER)
        assert (found["waiting", ""][0], found["executing", ""][0], found["parked", ""][0]) == (1, 1, 0)
        assert found["waiting", ""][1] > 0
        assert [one.phase for one in store.depth(queue.number, [], 1)] == [
            "scheduled", "waiting", "executing", "parked",
        ]  # fmt: skip

    def test_what_people_are_told_of_a_queue(self, store: Store, engine: int, queue: QueueTables) -> None:
        assert store.counts(queue.number, 10, 0, 0) == Counts(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        for place in ("executing", "waiting"):
            bring(store, engine, queue.number, place)
        ends = {"failed": [NOW - 9, NOW - 9, NOW - 5], "cancelled": [NOW - 5], "ok": [NOW - 5]}
        for code, moments in ends.items():
            for n, at in enumerate(moments):
                row = bring(store, engine, queue.number, "executing", key=f"{code} {n}")
                after = {
                    "failed": transitions.refused(row, FAULT, 400, at),
                    "cancelled": transitions.cancelled(row, "enough", at),
                    "ok": transitions.succeeded(row, "1", 200, at),
                }[code]
                save(store, row, after)
        again = bring(store, engine, queue.number, "executing", key="again")
        save(store, again, transitions.asked_again(again, Rerun(FAULT), ORDER, NOW))
        add(store, [new(queue.number, job_type=f"type {n}", rank=1) for n in range(4)])
        add(store, [new(queue.number, phase=SCHEDULED, scheduled_run_time=LATER + n) for n in range(3)])
        found = store.counts(queue.number, 10, NOW - 5, NOW - 9)
        assert (found.ready, found.scheduled, found.executing, found.waiting, found.parked) == (5, 3, 1, 1, 0)
        assert (found.retry, found.failed, found.done, found.next_start) == (1, 1, 5, LATER)
        assert store.counts(queue.number, 10, NOW - 9, NOW - 5)[5:8] == (1, 3, 3)
        assert found.next_timeout > 0
        assert store.counts(queue.number, 2, 0, 0)[:8] == (2, 2, 1, 1, 0, 1, 2, 2), "no further"


class TestWaitingTypes:
    def test_they_are_those_of_jobs_that_can_be_claimed(self, store: Store, engine: int, queue: QueueTables) -> None:
        for number, place in enumerate(PLACES):
            bring(store, engine, queue.number, place, job_type=f"type-{number}")
        found = {PLACES[int(name.removeprefix("type-"))] for name in store.waiting_types(queue.number)}
        assert found == {"initial ready", "retry ready", "answered", "cancelling", "deciding"}


class TestFind:
    def test_live_and_final_jobs_come_in_id_order(self, store: Store, engine: int, queue: QueueTables) -> None:
        ids = add(store, [new(queue.number, rank=-n) for n in range(20)])
        for row in claim(store, engine, queue.number, limit=9)[::2]:
            finish(store, row)
        rows = store.find(Filter(queue.number))
        assert [row.id for row in rows] == ids
        assert rows == [row_of(store, job_id) for job_id in ids]

    def test_pages_follow_each_other(self, store: Store, engine: int, queue: QueueTables) -> None:
        ids = add(store, [new(queue.number) for _ in range(25)])
        for row in claim(store, engine, queue.number)[::3]:
            finish(store, row)
        pages, after = [], 0
        while page := store.find(Filter(queue.number, after=after, limit=10)):
            pages.append([row.id for row in page])
            after = page[-1].id
        assert pages == [ids[:10], ids[10:20], ids[20:]]

    def test_the_newest_come_first_where_that_is_wanted(self, store: Store, engine: int, queue: QueueTables) -> None:
        """Live and final ones, by each of the ways in which a page is found."""
        for n in range(24):
            job = new(queue.number, "same" if n % 2 else f"key {n}", tenant=("", "acme", "other")[n % 3])
            add(store, [job])
            if n < 18:
                finish(store, claim(store, engine, queue.number)[0])
        rows = everything(store, queue.number)[::-1]
        filters: list[dict[str, Any]] = [
            {}, {"state": "final"}, {"state": "initial"}, {"job_key": "same"}, {"tenant": "acme"}, {"code": "ok"},
            {"tenant": "acme", "job_key": "same"}, {"tenant": "acme", "state": "final"}, {"job_type": TYPE},
        ]  # fmt: skip
        for wanted in filters:
            expected = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
            assert len(expected) > 2
            found: list[Row] = []
            while page := store.find(
                Filter(queue.number, **wanted, newest=True, after=found[-1].id if found else 0, limit=3)
            ):
                found += page
            assert found == expected, wanted

    def test_what_failed_is_found_by_its_error_and_its_code(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        """By the indexes of what failed, live or final; counted as it is found."""
        declined = Fault("failed", "declined by NONE of the banks")
        for n in range(14):
            row = bring(store, engine, queue.number, "executing", job_type=f"type {n}", tenant=("", "acme")[n % 2])
            after = {
                0: transitions.succeeded(row, "1", 200, NOW), 1: transitions.refused(row, declined, 400, NOW),
                2: transitions.cancelled(row, "declined", NOW), 3: transitions.errored(row, declined, 500, NOW),
                4: transitions.asked_again(row, Rerun(declined), ORDER, NOW), 5: row,
                6: transitions.given_back(row, "declined by a worker that stops", False, NOW),
            }[n // 2]  # fmt: skip
            if after is not row:
                save(store, row, after)
        save(
            store,
            again := row_of(store, everything(store, queue.number)[6].id),
            transitions.gave_up(again, declined, NOW),
        )
        rows = everything(store, queue.number)
        filters: list[dict[str, Any]] = [
            {"error": "declined"}, {"error": "NONE"}, {"error": "NONE of"}, {"error": "banks", "code": "failed"},
            {"error": "declined", "table": "live"}, {"error": "declined", "state": "final"}, {"state": "retry"},
            {"error": "declined", "state": "retry"}, {"state": "error"}, {"error": "declined", "state": "error"},
            {"error": "declined", "tenant": "acme"}, {"error": "declined", "job_type": "type 2"}, {"code": "failed"},
            {"code": "cancelled"}, {"code": "error"}, {"code": "retry"}, {"code": "ok"}, {"phase": "executing"},
            {"code": "cancelled", "tenant": "acme"}, {"code": "failed", "state": "retry"},
            {"since": NOW, "code": "failed"},
        ]  # fmt: skip

        def fits(row: Row, name: str, value: Any) -> bool:
            match name:
                case "error":
                    return row.error != "NONE" and value in row.error
                case "table":
                    return row.state != "final"
                case "since":
                    return row.create_time >= NOW
            return bool(getattr(row, name) == value)

        for wanted in filters:
            expected = [row for row in rows if all(fits(row, *one) for one in wanted.items())]
            assert store.find(Filter(queue.number, **wanted)) == expected, wanted
            assert store.find(Filter(queue.number, **wanted, newest=True)) == expected[::-1], wanted
            assert store.count(Filter(queue.number, **wanted)) == len(expected), wanted
            assert store.count(Filter(queue.number, **wanted, limit=1)) == min(len(expected), 1), wanted
        assert {row.code for row in rows} == {"ok", "failed", "cancelled", "error", "retry", "NONE"}

    def test_children_are_those_of_one_parent_live_or_final(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        metas = ('{"parent":17}', '{"parent":17,"then":"next"}', '{"parent":170}', r'{"then":"\"parent\":17"}', "{}")
        ids = add(store, [new(queue.number, meta=metas[n % 5], tenant=("", "acme")[n % 2]) for n in range(20)])
        for row in claim(store, engine, queue.number, limit=9):
            finish(store, row)
        mine = [job_id for n, job_id in enumerate(ids) if n % 5 < 2]
        wanted = Filter(queue.number, parent=17)
        assert [row.id for row in store.find(wanted)] == mine
        assert [row.id for row in store.find(wanted._replace(newest=True, limit=3), brief=True)] == mine[:-4:-1]
        assert [row.id for row in store.find(wanted._replace(after=mine[2], limit=3))] == mine[3:6]
        assert store.count(wanted) == len(mine)
        assert [row.tenant for row in store.find(wanted._replace(tenant="acme"))] == ["acme"] * 4
        assert store.find(wanted._replace(parent=1)) == []
        assert store.having([queue.number, queue2.number], wanted) == [queue.number]
        assert store.having([queue2.number], wanted) == store.having([], wanted) == []

    def test_queues_that_have_a_key_are_found(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        both = [queue.number, queue2.number]
        add(store, [new(queue.number, "order-1"), new(queue2.number, "order-10"), new(queue2.number, "order-2")])
        finish(store, claim(store, engine, queue.number)[0])
        for wanted, there in (
            (Filter(0, job_key="order-1"), both[:1]), (Filter(0, job_key="order-"), []),
            (Filter(0, prefix="order-1"), both), (Filter(0, prefix="order-2"), both[1:]),
            (Filter(0, prefix="order-3"), []),
        ):  # fmt: skip
            assert store.having(both, wanted) == there, wanted

    def test_filters_narrow_and_combine(self, store: Store, engine: int, queue: QueueTables) -> None:
        for place in PLACES:
            for tenant in ("", "acme"):
                bring(store, engine, queue.number, place, key=f"{place} {tenant}", job_type=f"{place}-{tenant}",
                      tenant=tenant)  # fmt: skip
        finish(store, bring(store, engine, queue.number, "executing", key="done", job_type="done", tenant="acme"))
        rows = everything(store, queue.number)
        assert len(rows) == 2 * len(PLACES) + 1
        filters: list[dict[str, Any]] = [
            {"state": "running"}, {"state": "final"}, {"state": "retry", "tenant": "acme"}, {"phase": "deciding"},
            {"phase": "ready", "state": "initial"}, {"job_type": "waiting-acme"}, {"tenant": "acme"},
            {"job_key": "executing "}, {"job_key": "executing ", "job_type": "executing-"},
            {"job_key": "executing ", "tenant": "acme"}, {"state": "nonsense"}, {"phase": "done", "job_key": "done"},
            {"tenant": "acme", "job_type": "done", "job_key": "done", "state": "final", "phase": "done"},
            {"tenant": "acme", "job_key": "executing acme"}, {"tenant": "acme", "job_key": "done"},
            {"tenant": "acme", "job_key": "waiting acme", "job_type": "waiting-acme"}, {"tenant": "nobody"},
            {"tenant": "acme", "code": "ok"}, {"tenant": "acme", "lane": "x"}, {"tenant": "acme", "state": "final"},
        ]  # fmt: skip
        for wanted in filters:
            expected = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
            assert store.find(Filter(queue.number, **wanted)) == expected, wanted
            assert store.find(Filter(queue.number, **wanted), brief=True) == [_brief(row) for row in expected], wanted
        assert (
            store.find(Filter(queue.number, tenant="acme", after=rows[5].id, limit=3))
            == [row for row in rows[6:] if row.tenant == "acme"][:3]
        )

    def test_one_gets_as_far_as_so_many_of_a_tenants_jobs(self, store: Store, engine: int, queue: QueueTables) -> None:
        ids = add(store, [new(queue.number, tenant=("acme", "other")[n % 2]) for n in range(40)])
        for row in claim(store, engine, queue.number, limit=20):
            finish(store, row)
        mine, rows = ids[::2], everything(store, queue.number)
        final = {row.id for row in rows if row.state == "final"}
        acme = Filter(queue.number, tenant="acme")
        for wanted, there in (
            (acme._replace(state="final"), [job_id for job_id in mine if job_id in final]),
            (acme._replace(table="live"), [job_id for job_id in mine if job_id not in final]),
        ):
            assert len(there) > 4
            assert store.reach(wanted, 3) == there[2]
            assert store.reach(wanted._replace(job_type="nobody", after=there[0]), 3) == there[3], "whatever they are"
            assert store.reach(wanted, len(there)) == there[-1]
            assert store.reach(wanted, len(there) + 1) == 0
            assert [one.id for one in store.find(wanted._replace(until=there[2]), brief=True)] == there[:3]
        assert store.reach(acme, 3) == min(store.reach(acme._replace(table=table), 3) for table in ("live", "final"))
        assert store.reach(acme._replace(state="final", phase="ready"), 3) == 0

    def test_what_runs_is_counted_by_type(self, store: Store, engine: int, queue: QueueTables) -> None:
        for tenant in ("acme", "other"):
            for place in PLACES:
                bring(store, engine, queue.number, place, key=place, job_type=f"{place}-{tenant}", tenant=tenant)
        found, more = store.census(queue.number, "acme", "live", 0, 100)
        assert Counted("executing-acme", "running", "executing", 1) in found
        assert (sum(one.jobs for one in found), more) == (
            store.count(Filter(queue.number, tenant="acme", table="live")),
            0,
        )
        pages, after = 0, 0
        while after or not pages:
            some, after = store.census(queue.number, "acme", "live", after, 1)
            pages += sum(one.jobs for one in some)
        assert pages == sum(one.jobs for one in found)
        assert {one.state for one in store.census(queue.number, "acme", "final", 0, 100)[0]} <= {"final"}
        assert store.census(queue.number, "nobody", "live", 0, 10) == ([], 0)

    def test_a_job_that_was_only_given_back_is_counted_as_initial(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        given_back, asked_again = (
            bring(store, engine, queue.number, "executing", key=key, tenant="acme") for key in ("a", "b")
        )
        save(store, given_back, transitions.given_back(given_back, "no slot was free", False, NOW))
        save(store, asked_again, transitions.asked_again(asked_again, Rerun(FAULT), ORDER, NOW))
        found, _ = store.census(queue.number, "acme", "live", 0, 100)
        assert sorted(found) == [Counted(TYPE, "initial", "ready", 1), Counted(TYPE, "retry", "ready", 1)]

    def test_a_filter_is_text_and_never_a_pattern(self, store: Store, queue: QueueTables) -> None:
        add(store, [new(queue.number, "abc"), new(queue.number, "100%")])
        for key in ("%", "a%", "_bc", "' OR 1=1 --", "ABC", "*"):
            assert store.find(Filter(queue.number, job_key=key)) == []
        assert [row.job_key for row in store.find(Filter(queue.number, job_key="100%"))] == ["100%"]

    def test_one_queue_does_not_show_another(self, store: Store, queue: QueueTables, queue2: QueueTables) -> None:
        ids = add(store, [new(queue.number), new(queue2.number)])
        assert [row.id for row in store.find(Filter(queue2.number))] == ids[1:]


class TestPeek:
    def test_an_engine_may_know_very_many_types(self, store: Store, queue: QueueTables) -> None:
        types = tuple(f"type_{n}" for n in range(600))
        add_one(store, new(queue.number, job_type="type_599"))
        assert store.peek([(queue.number, types)])[0].ready
        assert not store.peek([(queue.number, types[:-1])])[0].ready

    def test_an_empty_queue_has_nothing_to_do(self, store: Store, queue: QueueTables) -> None:
        assert store.peek([(queue.number, (TYPE,))]) == [Peek(queue.number, False, 0, 0, False)]

    def test_it_shows_what_is_ready_for_the_types_asked(self, store: Store, queue: QueueTables) -> None:
        add(store, [new(queue.number)])
        for types, ready in (((TYPE,), True), (("mail", TYPE), True), (("mail",), False), ((), False)):
            assert store.peek([(queue.number, types)]) == [Peek(queue.number, ready, 0, 0, False)]

    def test_it_shows_what_waits_for_a_judgement(self, store: Store, engine: int, queue: QueueTables) -> None:
        bring(store, engine, queue.number, "deciding")
        assert store.peek([(queue.number, (TYPE,))])[0].ready
        assert not store.peek([(queue.number, ("mail",))])[0].ready
        claim(store, engine, queue.number)
        assert not store.peek([(queue.number, (TYPE,))])[0].ready

    def test_it_shows_when_the_first_scheduled_job_is_due(
        self, store: Store, engine: int, queue: QueueTables, clock: HandClock
    ) -> None:
        add(store, [new(queue.number, scheduled_run_time=LATER + n) for n in (50, 20, 70)])
        assert store.peek([(queue.number, ())]) == [Peek(queue.number, False, LATER + 20, 0, False)]
        row = bring(store, engine, queue.number, "retry scheduled", job_type="mail")
        assert store.peek([(queue.number, (TYPE,))]) == [Peek(queue.number, False, row.scheduled_run_time, 0, False)]
        store.stage(queue.number, SCHEDULED, LATER + 60, 100)
        clock.advance(hours=1, seconds=1)
        assert store.peek([(queue.number, (TYPE,))]) == [Peek(queue.number, True, LATER + 70, 0, False)]

    def test_it_shows_when_the_first_waiting_job_times_out(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, [new(queue.number)] * 3)
        rows = claim(store, engine, queue.number)
        assert store.peek([(queue.number, (TYPE,))]) == [Peek(queue.number, False, 0, 0, True)]
        for row, n in zip(rows, (50, 20, 70), strict=True):
            save(store, row, waits(row, LATER + n, NOW))
        assert store.peek([(queue.number, (TYPE,))]) == [Peek(queue.number, False, 0, LATER + 20, False)]

    def test_it_shows_whether_an_engine_has_a_job_in_hand(
        self, store: Store, other: Store, engine: int, queue: QueueTables
    ) -> None:
        for place in PLACES:
            row = bring(store, engine, queue.number, place)
            assert other.peek([(queue.number, ())])[0].owned == (
                place in ("executing", "being looked at", "being decided")
            ), place
            save(store, row, transitions.cancelled(row, "by hand", NOW))
            assert not other.peek([(queue.number, ())])[0].owned

    def test_it_shows_whether_answers_came_in_plain_sql(
        self, store: Store, queue: QueueTables, queue2: QueueTables, database: Database
    ) -> None:
        insert = "INSERT INTO hipq_answers (queue, job_type, job_key, data) VALUES ({}, 'work', 'a', 'null')"
        conn = database.connect()
        conn.execute(insert.format(queue2.number))
        conn.commit()
        conn.close()
        both = [(queue.number, (TYPE,)), (queue2.number, (TYPE,))]
        assert [peek.answers for peek in store.peek(both)] == [False, True]

    def test_several_queues_are_one_look(self, store: Store, queue: QueueTables, queue2: QueueTables) -> None:
        assert store.peek([]) == []
        add(store, [new(queue.number), new(queue2.number, job_type="mail", scheduled_run_time=LATER)])
        both = [(queue2.number, ("mail", TYPE)), (queue.number, (TYPE,))]
        expected = [Peek(queue2.number, False, LATER, 0, False), Peek(queue.number, True, 0, 0, False)]
        assert store.peek(both) == expected
        assert store.peek(both * 300) == expected * 300


class TestOverdue:
    def test_waiting_jobs_past_their_deadline_come_earliest_first(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        add(store, [new(queue.number)] * 5)
        offsets = (30, 10, 50, 20, 40)
        rows = {
            n: save(store, row, waits(row, LATER + n, NOW))
            for row, n in zip(claim(store, engine, queue.number), offsets, strict=True)
        }
        assert store.due(queue.number, WAITING, LATER + 9, 10) == []
        assert store.due(queue.number, WAITING, LATER + 30, 10) == [rows[10], rows[20], rows[30]]
        assert store.due(queue.number, WAITING, LATER + 99, 2) == [rows[10], rows[20]]

    def test_only_waiting_jobs_are_overdue(self, store: Store, engine: int, queue: QueueTables) -> None:
        for place in PLACES:
            if place != "waiting":
                bring(store, engine, queue.number, place, job_type=place.replace(" ", "_"), timeout=1.0)
        row = bring(store, engine, queue.number, "waiting")
        finish(store, row)
        assert store.due(queue.number, WAITING, LATER + 10 * 86_400 * SECOND, 100) == []


class TestPrune:
    def test_only_final_jobs_older_than_the_moment_go(self, store: Store, engine: int, queue: QueueTables) -> None:
        for place in PLACES:
            bring(store, engine, queue.number, place, job_type=place.replace(" ", "_"))
        live = everything(store, queue.number)
        add(store, [new(queue.number)] * 4)
        rows = [finish(store, row, NOW + n) for n, row in enumerate(claim(store, engine, queue.number))]
        assert store.prune(queue.number, (NOW, 0), 100).deleted == 0
        assert store.prune(queue.number, (NOW + 2, 0), 100).deleted == 2
        assert everything(store, queue.number) == live + rows[2:]
        assert [store.get(row.id) for row in rows] == [None, None, *rows[2:]]
        assert store.prune(queue.number, (LATER, 0), 100).deleted == 2
        assert store.prune(queue.number, (LATER, 0), 100).deleted == 0
        assert everything(store, queue.number) == live

    def test_the_oldest_go_first_up_to_the_limit(self, store: Store, engine: int, queue: QueueTables) -> None:
        add(store, [new(queue.number)] * 6)
        times = (5, 3, 6, 1, 4, 2)
        for row, n in zip(claim(store, engine, queue.number), times, strict=True):
            save(store, row, transitions.refused(row, FAULT, 400, NOW + n))
        for left in ({3, 4, 5, 6}, {5, 6}, set()):
            assert store.prune(queue.number, (LATER, 0), 2).deleted == 2
            assert {row.update_time - NOW for row in everything(store, queue.number)} == left

    def test_one_queue_does_not_prune_another(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        row = finish(store, bring(store, engine, queue2.number, "executing"))
        assert store.prune(queue.number, (LATER, 0), 10).deleted == 0
        assert store.get(row.id) == row


class TestNow:
    def test_the_time_of_jobs_is_the_clock_it_was_given(self, store: Store, clock: HandClock) -> None:
        assert store.now() == clock.now()
        clock.advance(hours=3)
        assert store.now() == clock.now() == NOW + 3 * 3600 * SECOND


class TestLocked:
    def test_jobs_that_run_lock_no_queue(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        bring(store, engine, queue.number, "executing")
        assert store.locked([queue.number, queue2.number]) == set()
        assert store.locked([]) == set()
