"""What has happened, as counters that are kept with the changes they count."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from msgspec.structs import replace

from hipq.errors import Invalid, StoreRefused
from hipq.job import transitions, wait_transitions
from hipq.job.activity import BOUNDS, COUNTERS, DAY, HOUR, MINUTE, Activity, total
from hipq.job.model import Change, Ran, Row
from hipq.job.run_result import Rerun
from hipq.job.tally import TYPES
from hipq.job.waiting import Waiting, since
from hipq.job.when import SECOND
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database, raw
from tests.contract.jobs import FAULT, LATER, NOW, ORDER, add, answer, bring, claim, finish, new, save, waits

START = NOW - NOW % (DAY * SECOND)
END = START + 2 * DAY * SECOND


def counted(store: Store, *queues: QueueTables, since: int = START, until: int = END) -> dict[str, int]:
    """What was counted in these queues, of all types, in all that time; what is 0 is left out."""
    found = total(store.activity([queue.number for queue in queues], DAY, since, until))
    return {name: n for name, n in zip(COUNTERS, found.counts, strict=True) if n}


def done(row: Row, now: int, seconds: float = 0.5) -> Change:
    return Change(row, transitions.succeeded(row, "null", 200, now), ran=Ran(seconds, None))


def outcome(row: Activity) -> tuple[int, int, int, int]:
    return row.started, row.finished, row.failed, row.retried


class TestActivity:
    def test_what_jobs_come_to_is_counted(self, store: Store, engine: int, queue: QueueTables) -> None:
        def gave_up(row: Row) -> Row:
            return transitions.gave_up(row, FAULT, NOW)

        ends: list[tuple[str, Callable[[Row], Row]]] = [
            ("executing", lambda row: transitions.succeeded(row, "null", 200, NOW)),
            ("executing", lambda row: transitions.refused(row, FAULT, 404, NOW)),
            ("executing", lambda row: transitions.cancelled(row, "why not", NOW)),
            ("initial ready", lambda row: transitions.cancelled(row, "why not", NOW)),
            ("initial ready", lambda row: transitions.rejected(row, "never", NOW)),
            ("deciding", gave_up),
            ("deciding", lambda row: transitions.retried(row, Rerun(FAULT), ORDER, NOW)),
            ("executing", lambda row: transitions.asked_again(row, Rerun(FAULT), ORDER, NOW)),
            ("executing", lambda row: transitions.rescued(row, NOW)),
            ("executing", lambda row: transitions.given_back(row, "not started", False, NOW)),
            ("executing", lambda row: transitions.adopted(row, row.owner + 1, NOW)),
            ("executing", lambda row: waits(row, LATER, NOW)),
        ]
        rows = [
            (bring(store, engine, queue.number, place, job_type=f"t{n}"), move) for n, (place, move) in enumerate(ends)
        ]
        turned = store.turn(engine, [Change(row, move(row)) for row, move in rows], [], NOW)
        assert not turned.lost
        assert counted(store, queue) == {
            "started": 8, "ok": 1, "failed": 2, "error": 1, "cancelled": 2, "retried": 3,
        }  # fmt: skip

    def test_nothing_that_is_lost_is_counted(self, store: Store, engine: int, queue: QueueTables) -> None:
        """Alone, beside others, and beside others of another kind of change."""
        rows = [bring(store, engine, queue.number, "executing", job_type=f"t{n}") for n in range(6)]
        for row in rows[:3]:
            save(store, row, transitions.errored(row, FAULT, 500, NOW))
        again = [Change(row, transitions.asked_again(row, Rerun(FAULT), ORDER, NOW)) for row in rows[1:3] + rows[4:5]]
        changes = [done(row, NOW) for row in (rows[0], rows[3], rows[5])]
        assert store.turn(engine, [done(rows[0], NOW)], [], NOW).lost == {rows[0].id}
        assert counted(store, queue) == {"started": 3}
        assert store.turn(engine, [*changes, *again], [], NOW).lost == {row.id for row in rows[:3]}
        assert counted(store, queue) == {"started": 6, "ok": 2, "retried": 1, "run_6": 2}

    def test_a_second_change_of_a_job_in_one_turn_is_not_counted(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        row = bring(store, engine, queue.number, "executing")
        store.turn(engine, [done(row, NOW), done(row, NOW)], [], NOW)
        assert counted(store, queue)["ok"] == 1

    def test_nothing_is_counted_of_a_transaction_that_fails(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        rows = [bring(store, engine, queue.number, "executing", job_type=f"t{n}") for n in range(2)]
        bad = Change(rows[1], replace(transitions.succeeded(rows[1], "null", 200, NOW), result="\x00"))
        with pytest.raises(StoreRefused):
            store.turn(engine, [done(rows[0], NOW), bad], [], NOW)
        assert counted(store, queue) == {}

    def test_a_run_counts_where_it_started_and_all_else_where_it_ended(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        minute = NOW - NOW % (MINUTE * SECOND)
        row, later = bring(store, engine, queue.number, "executing", timeout=900.25), minute + 5 * MINUTE * SECOND
        store.turn(engine, [done(row, later, 300)], [], later)
        rows = store.activity([queue.number], MINUTE, START, START + DAY * SECOND // 2 + NOW - START)
        assert [(one.starts, *outcome(one)) for one in rows] == [(minute, 1, 0, 0, 0), (later, 0, 1, 0, 0)]
        assert rows[1].run.buckets[12] == rows[1].run.total == 1

    @pytest.mark.parametrize("by_answer", [False, True])
    def test_how_long_an_answer_took(self, store: Store, engine: int, queue: QueueTables, by_answer: bool) -> None:
        """It ends the job, or is looked at."""
        row = bring(store, engine, queue.number, "executing")
        wait = Waiting(until=LATER, direct=by_answer, since=since(row))
        save(store, row, wait_transitions.waits(row, wait, NOW))
        now = NOW + 20 * SECOND
        (delivered,) = store.answer([answer(queue.number, row.job_key, arrived=now)], now)
        assert delivered.change
        assert counted(store, queue) == {"started": 1, "answer_9": 1} | ({"ok": 1} if by_answer else {})
        if not by_answer:
            (row,) = claim(store, engine, queue.number, now=now)
            row = save(store, row, replace(wait_transitions.unread(row, FAULT, now), deadline=now))
            save(store, row, wait_transitions.looks_again(row, now))
            assert counted(store, queue) == {"started": 1, "answer_9": 1}

    def test_an_answer_that_was_there_before(self, store: Store, engine: int, queue: QueueTables) -> None:
        row, now = bring(store, engine, queue.number, "executing"), NOW + 2 * SECOND
        store.answer([answer(queue.number, row.job_key)], NOW)
        turned = store.turn(engine, [Change(row, waits(row, LATER, now))], [], now)
        assert list(turned.answered) == [row.id]
        assert counted(store, queue) == {"started": 1, "answer_7": 1}

    def test_by_queue_and_job_type(self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables) -> None:
        for place, job_type in ((queue, "b"), (queue, "a"), (queue2, "a"), (queue, "a")):
            finish(store, bring(store, engine, place.number, "executing", job_type=job_type))
        read = partial(store.activity, [queue.number, queue2.number], HOUR, NOW, NOW + 1)
        hour = NOW - NOW % (HOUR * SECOND)
        assert [(one.starts, one.queue, one.job_type, one.finished) for one in read()] == [(hour, 0, "", 4)]
        found = [(one.queue, one.job_type, one.finished) for one in read(by="queue")]
        assert found == [(queue.number, "", 3), (queue2.number, "", 1)]
        found = [(one.queue, one.job_type, one.finished) for one in read(by="job_type")]
        assert found == [(queue.number, "a", 2), (queue.number, "b", 1), (queue2.number, "a", 1)]
        assert store.activity([], HOUR, NOW, NOW + 1) == []

    def test_a_process_counts_so_many_types_apart(self, store: Store, engine: int, queue: QueueTables) -> None:
        types = [f"t{n:03}" for n in range(TYPES + 20)]
        add(store, [new(queue.number, job_type=job_type) for job_type in types])
        rows = claim(store, engine, queue.number, types=types, limit=len(types))
        store.turn(engine, [done(row, NOW) for row in rows], [], NOW)
        found = {one.job_type: one.finished for one in store.activity([queue.number], HOUR, NOW, NOW + 1, "job_type")}
        assert (len(found), found[""], sum(found.values())) == (TYPES + 1, 20, TYPES + 20)

    def test_what_is_asked_for_is_bounded(self, store: Store, queue: QueueTables) -> None:
        for grain, until in ((30, NOW + 1), (90, NOW + 1), (MINUTE, NOW + 2001 * MINUTE * SECOND)):
            with pytest.raises(Invalid):
                store.activity([queue.number], grain, NOW, until)

    def test_the_columns_are_the_counters(self, store: Store, queue: QueueTables, database: Database) -> None:  # noqa: ARG002
        conn = database.connect()
        names = [column[0] for column in conn.execute("SELECT * FROM hipq_activity WHERE queue = 0").description]
        conn.close()
        assert tuple(names[-len(COUNTERS) :]) == COUNTERS
        assert COUNTERS[-1] == f"answer_{len(BOUNDS)}"

    def test_that_of_a_queue_goes_with_it(
        self, store: Store, engine: int, queue: QueueTables, database: Database
    ) -> None:
        finish(store, bring(store, engine, queue.number, "executing"))
        store.renew_lease(engine, 0)
        store.drop_queue(queue.number)
        assert raw(database, f"SELECT ok FROM hipq_activity WHERE queue = {queue.number}") == []


class TestFolding:
    def test_minutes_become_hours_and_days_and_nothing_is_lost(
        self, store: Store, engine: int, queue: QueueTables, database: Database
    ) -> None:
        times = [NOW + (hour * HOUR + hour % 60 * MINUTE) * SECOND for hour in range(24 * 12)]
        times += [times[-1] + minute * MINUTE * SECOND for minute in range(1, 60)]
        add(store, [new(queue.number) for _ in times])
        for row, now in zip(claim(store, engine, queue.number, limit=len(times)), times, strict=True):
            store.turn(engine, [done(row, now)], [], now)
        until = times[-1] + 1
        before = counted(store, queue, until=until)
        assert before == {"started": len(times), "ok": len(times), "run_6": len(times)}
        while store.maintain([queue.number], until, 10).folded:
            assert counted(store, queue, until=until) == before
        grains = raw(database, f"SELECT grain, count(*) FROM hipq_activity WHERE queue = {queue.number} GROUP BY grain")
        assert {grain: 0 < rows < 24 * 10 for grain, rows in grains} == dict.fromkeys((MINUTE, HOUR, DAY), True)
        last = store.activity([queue.number], MINUTE, until - HOUR * SECOND, until)
        assert len(last) >= 60
        assert [one.finished for one in store.activity([queue.number], HOUR, until - 24 * HOUR * SECOND, until)][
            :20
        ] == [1] * 20

    def test_what_comes_late_is_added(self, store: Store, engine: int, queue: QueueTables) -> None:
        """A run that began in a minute long folded."""
        rows = [bring(store, engine, queue.number, "executing", job_type=f"t{n % 2}") for n in range(3)]
        save(store, rows[0], transitions.errored(rows[0], FAULT, 500, NOW))
        for n, row in enumerate(rows[1:], 10):
            now = NOW + n * DAY * SECOND
            while store.maintain([queue.number], now, 10).folded:
                pass
            store.turn(engine, [done(row, now)], [], now)
        day, period = START, DAY * SECOND
        assert counted(store, queue, since=day, until=day + period) == {"started": 3}
        while store.maintain([queue.number], NOW + 20 * DAY * SECOND, 10).folded:
            pass
        assert counted(store, queue, since=day, until=day + period) == {"started": 3}

    def test_after_a_year_it_is_forgotten(
        self, store: Store, engine: int, queue: QueueTables, queue2: QueueTables
    ) -> None:
        for one in (queue, queue2):
            finish(store, bring(store, engine, one.number, "executing"))
        for days, left in ((390, True), (402, False)):
            while store.maintain([queue.number], NOW + days * DAY * SECOND, 10).folded:
                pass
            assert bool(counted(store, queue)) == left
        assert counted(store, queue2)  # which is for others to fold

    def test_several_at_once_count_and_fold(self, stores: list[Store], engine: int, queue: QueueTables) -> None:
        """Two engines settle jobs, some of them of long ago, while two others fold."""
        jobs = 60
        add(stores[0], [new(queue.number) for _ in range(2 * jobs)])
        rows = claim(stores[0], engine, queue.number, limit=2 * jobs)
        now = NOW + 20 * DAY * SECOND

        def settle(store: Store, some: list[Row]) -> None:
            for n, row in enumerate(some):
                at = now - n % 5 * 3 * DAY * SECOND
                assert not store.turn(engine, [done(row, at)], [], at).lost

        def fold(store: Store) -> None:
            while not all(one.done() for one in settling):
                store.maintain([queue.number], now, 10)

        with ThreadPoolExecutor(4) as pool:
            settling = [pool.submit(settle, stores[n], rows[n * jobs :][:jobs]) for n in (0, 1)]
            for one in (*settling, *(pool.submit(fold, store) for store in stores[2:])):
                one.result()
        expected = {"started": 2 * jobs, "ok": 2 * jobs, "run_6": 2 * jobs}
        assert counted(stores[0], queue, until=now + 1) == expected
        while stores[0].maintain([queue.number], now, 10).folded:
            pass
        assert counted(stores[0], queue, until=now + 1) == expected
