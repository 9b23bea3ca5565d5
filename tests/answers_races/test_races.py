"""What happens at the same moment: an answer and whatever else changes its job. Forced in both orders, and hammered.

Forced: one side is held in its transaction after it has looked and before it has written; the other side begins. If it
does not wait for the first one's end, they pass each other and the answer is lost. Hammered: two real processes.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg
import pymysql
import pytest
from msgspec.structs import replace

from hipq.errors import KeyTaken
from hipq.job import transitions, wait_transitions
from hipq.job.answer import Answered
from hipq.job.fault import Fault
from hipq.job.model import Change, Row
from hipq.job.run_result import FailedRun, Rerun
from hipq.job.states import ANSWERED, EXECUTING
from hipq.stores.claims import Claim, Turned
from hipq.stores.inbox_transaction import lock_number
from hipq.stores.mariadb.address import options_of
from hipq.stores.mariadb.inbox import MariaInbox
from hipq.stores.mariadb.store import LOCKS
from hipq.stores.open import open_store
from hipq.stores.postgres.inbox import PostgresInbox
from hipq.stores.postgres.store import PostgresStore
from hipq.stores.protocols import Store
from hipq.stores.sqlite.inbox import SqliteInbox
from hipq.stores.values import Delivered
from tests.answers_races import hammer, scene
from tests.answers_races.scene import (
    ORDER,
    TYPE,
    answer,
    answers_of,
    begins_to_wait,
    drain,
    ends_by,
    executing,
    inbox,
    jobs,
    wrong,
)
from tests.mariadb_server import fresh_maria
from tests.servers import fresh_database

T = TypeVar("T")
SHORT = float(os.environ.get("HIPQ_RACES_SECONDS", "0.25"))
"""Seconds in which the side that does not wait would be done. `test_planted` gives it many: it wants to see it done."""


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('races')}/races.db"
    else:
        with fresh_database() if request.param == "postgres" else fresh_maria() as found:
            yield found


class Two(NamedTuple):
    """Two store objects on one database, as two processes have them; an engine's number; a queue."""

    store: Store
    other: Store
    engine_id: int
    queue: int

    def row(self, key: str) -> Row:
        """It executes."""
        return executing(self.store, self.engine_id, self.queue, [key])[0]

    def waiting(self, key: str, on_timeout: FailedRun | None = None, direct: bool = False) -> Row:
        return scene.waiting(self.store, self.engine_id, [self.row(key)], on_timeout, direct)[0]

    def asking(self, key: str, wait_key: str) -> Row:
        """It waits under a key of its wait."""
        change = begins_to_wait(self.row(key), self.store.now(), wait_key)
        assert not self.save(change).answered
        return change.after

    def tried_again(self, row: Row) -> Row:
        """It timed out, and executes once more."""
        now = self.store.now()
        errored = wait_transitions.timed_out(row, ORDER, now)
        again = transitions.retried(errored, Rerun(Fault("error", "x"), delay=0.0), ORDER, now)
        assert not self.save(Change(row, replace(again, token=errored.token), (), "again")).lost
        (claimed,) = self.store.turn(self.engine_id, [], [Claim(self.queue, (TYPE,), 1)], self.store.now()).won
        return claimed

    def answer(self, key: str, data: str = "answer", **more: Any) -> Delivered:
        now = self.other.now()
        return self.other.answer([answer(self.queue, key, data, now, **more)], now)[0]

    def save(self, change: Change) -> Turned:
        return self.store.turn(self.engine_id, [change], [], self.store.now())

    def begins_to_wait(self, row: Row, key: str = "") -> Turned:
        return self.save(begins_to_wait(row, self.store.now(), key))

    def times_out(self, row: Row) -> Turned:
        return self.save(Change(row, wait_transitions.overdue(row, ORDER, self.store.now()), (), "timed out"))

    def ended(self, key: str) -> Row:
        """After all that is left to do is done: it must have ended by its answer."""
        drain(self.store, self.engine_id, self.queue)
        row = jobs(self.store, self.queue)[key]
        assert wrong(row, answers_of(self.store, self.queue, row)) == ""
        return row


@pytest.fixture
def two(url: str, request: pytest.FixtureRequest) -> Iterator[Two]:
    """Each test has a queue of its own."""
    with ExitStack() as stack:
        store, other = (stack.enter_context(closing(open_store(url))) for _ in range(2))
        store.migrate()
        name = f"q{abs(hash(request.node.name)):x}"
        queue = store.queue("races", name, f"races_{name}").number
        other.queues()
        yield Two(store, other, store.take_lease(scene.LEASE, "test"), queue)


class Held:
    """Holds whoever comes first at a place, until it is let go."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.go = threading.Event()
        self._first = threading.Lock()

    def __call__(self) -> None:
        if self._first.acquire(blocking=False):
            self.there.set()
            assert self.go.wait(60), "nobody let it go"


@contextmanager
def held(patch: pytest.MonkeyPatch, name: str, *classes: type, after: bool = False) -> Iterator[Held]:
    """Before this method runs, or after it."""
    hold = Held()
    with patch.context() as patching:
        for one in classes:
            real = getattr(one, name)

            def wrapped(self: Any, *args: Any, real: Any = real) -> Any:
                if not after:
                    hold()
                result = real(self, *args)
                if after:
                    hold()
                return result

            patching.setattr(one, name, wrapped)
        try:
            yield hold
        finally:
            hold.go.set()


def looked_answer(patch: pytest.MonkeyPatch) -> Any:
    """An answer that has looked for its job, and not written yet."""
    return held(patch, "live", PostgresInbox, MariaInbox, SqliteInbox, after=True)


def looked_job(patch: pytest.MonkeyPatch) -> Any:
    """A job that begins to wait and has looked for its answer, and not written yet."""
    return held(patch, "pending", PostgresInbox, MariaInbox, SqliteInbox, after=True)


def meet(holding: Any, first: Callable[[], T], second: Callable[[], Any]) -> tuple[T, Any]:
    """The first is held; the second begins, and has time enough to pass it; then the first goes on."""
    with ThreadPoolExecutor(2) as pool, holding as hold:
        one: Future[T] = pool.submit(first)
        assert hold.there.wait(60), one.exception(0) if one.done() else "it did not come"
        two = pool.submit(second)
        passed = bool(wait([two], SHORT).done)
        hold.go.set()
        results = one.result(60), two.result(60)
    assert not passed, f"the second did not wait for the first; they came to {results}: the answer may be lost"
    return results


class TestForced:
    """1 x 2: a job begins to wait while its answer comes."""

    def test_an_answer_that_has_looked_is_met_by_the_wait(self, two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
        row = two.row("a")
        came, turned = meet(looked_answer(monkeypatch), lambda: two.answer("a"), lambda: two.begins_to_wait(row))
        assert (came.outcome, came.job) == (Answered.BUFFERED, row.id)
        assert turned.answered[row.id].phase == ANSWERED
        two.ended("a")

    def test_a_wait_that_has_looked_is_met_by_the_answer(self, two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
        row = two.row("a")
        turned, came = meet(looked_job(monkeypatch), lambda: two.begins_to_wait(row), lambda: two.answer("a"))
        assert (came.outcome, came.job) == (Answered.MATCHED, row.id)
        assert not turned.answered
        two.ended("a")

    def test_progress_that_has_looked_is_met_by_the_next_answer(
        self, two: Two, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        two.waiting("a")
        two.answer("a", "40 %")
        won = two.store.turn(two.engine_id, [], [Claim(two.queue, (TYPE,), 1)], two.store.now())
        (row,) = won.won
        now = two.store.now()
        change = Change(row, wait_transitions.progressed(row, 0, now), (), "progress", won.answers[row.id].id)
        _, came = meet(looked_job(monkeypatch), lambda: two.save(change), lambda: two.answer("a", "done"))
        assert came.outcome == Answered.MATCHED
        drain(two.store, two.engine_id, two.queue)
        assert jobs(two.store, two.queue)["a"].result == '"done"'
        assert [one.state for one in inbox(two.store, two.queue)["a"]] == ["progress", "settled"]

    # -- 9 ----------------------------------------------------------------------------------------------------------
    def test_an_answer_that_has_looked_wins_over_the_time_out(self, two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
        row = two.waiting("a")
        came, turned = meet(looked_answer(monkeypatch), lambda: two.answer("a"), lambda: two.times_out(row))
        assert came.outcome == Answered.MATCHED
        assert turned.lost == {row.id}
        assert two.ended("a").failures == 0

    def test_a_time_out_that_is_being_saved_makes_the_answer_wait(
        self, two: Two, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It ends the job, so the answer is late."""
        final = FailedRun(Fault("failed", "nobody answered"), 504)
        row = two.waiting("a", final)
        with held(monkeypatch, "place_leftovers", PostgresInbox, MariaInbox, SqliteInbox) as hold:
            turned, came = meet(_same(hold), lambda: two.times_out(row), lambda: two.answer("a"))
        assert turned.lost == frozenset()
        assert (came.outcome, came.job) == (Answered.LATE, row.id)
        assert jobs(two.store, two.queue)["a"].code == "failed"

    # -- 16 ---------------------------------------------------------------------------------------------------------
    @pytest.mark.parametrize("key", ["own", "ticket"])
    def test_an_answer_under_either_key_that_has_looked_is_met_by_the_wait(
        self, two: Two, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        row = two.row("own")
        wait = lambda: two.begins_to_wait(row, "ticket")  # noqa: E731
        came, turned = meet(looked_answer(monkeypatch), lambda: two.answer(key), wait)
        assert (came.outcome, came.job) == (Answered.BUFFERED, row.id if key == "own" else 0)
        assert turned.answered[row.id].phase == ANSWERED
        two.ended("own")

    @pytest.mark.parametrize("key", ["own", "ticket"])
    def test_a_wait_that_has_looked_is_met_by_an_answer_under_either_key(
        self, two: Two, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        row = two.row("own")
        wait = lambda: two.begins_to_wait(row, "ticket")  # noqa: E731
        _, came = meet(looked_job(monkeypatch), wait, lambda: two.answer(key))
        assert (came.outcome, came.job) == (Answered.MATCHED, row.id)
        two.ended("own")

    @pytest.mark.parametrize("key", ["own", "ticket"])
    def test_an_answer_under_either_key_that_has_looked_wins_over_the_time_out(
        self, two: Two, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        row = two.asking("own", "ticket")
        came, turned = meet(looked_answer(monkeypatch), lambda: two.answer(key), lambda: two.times_out(row))
        assert (came.outcome, turned.lost) == (Answered.MATCHED, {row.id})
        assert two.ended("own").failures == 0

    @pytest.mark.parametrize("key", ["own", "ticket"])
    def test_a_next_wait_that_has_looked_and_an_answer_under_a_key_of_the_last(
        self, two: Two, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        """Its own key finds it before and after. The last wait's key is gone then: nobody is given what comes under it,
        and it is kept."""
        row = two.tried_again(two.asking("own", "ticket"))
        wait = lambda: two.begins_to_wait(row, "next")  # noqa: E731
        _, came = meet(looked_job(monkeypatch), wait, lambda: two.answer(key))
        expected = (Answered.MATCHED, row.id) if key == "own" else (Answered.BUFFERED, 0)
        assert (came.outcome, came.job) == expected
        two.answer("next", "to the next")
        assert two.ended("own").attempt == 2

    @pytest.mark.parametrize("key", ["own", "ticket"])
    def test_an_answer_under_a_key_of_the_last_wait_that_has_looked_is_met_by_the_next(
        self, two: Two, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        row = two.tried_again(two.asking("own", "ticket"))
        wait = lambda: two.begins_to_wait(row, "next")  # noqa: E731
        came, turned = meet(looked_answer(monkeypatch), lambda: two.answer(key), wait)
        assert (came.outcome, came.job) == (Answered.BUFFERED, row.id)
        assert turned.answered[row.id].phase == ANSWERED
        assert two.ended("own").attempt == 2

    def test_two_jobs_that_want_one_key_at_once(self, two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
        """One gets it, and the other is told who has it."""
        first, second = two.row("first"), two.row("second")

        def wait() -> dict[int, int]:
            now = two.other.now()
            try:
                two.other.turn(two.engine_id, [begins_to_wait(second, now, "ticket")], [], now)
            except KeyTaken as error:
                return dict(error.holders)
            return {}

        turned, holders = meet(looked_job(monkeypatch), lambda: two.begins_to_wait(first, "ticket"), wait)
        assert (turned.lost, holders) == (frozenset(), {second.id: first.id})
        assert two.answer("ticket").job == first.id

    # -- the others -------------------------------------------------------------------------------------------------
    def test_an_answer_that_saw_no_job_is_found_by_the_one_that_was_being_added(
        self, two: Two, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with looked_answer(monkeypatch) as hold, ThreadPoolExecutor(1) as pool:
            coming = pool.submit(two.answer, "a")
            assert hold.there.wait(60)
            if isinstance(two.store, PostgresStore):  # it neither locks nor looks
                row = two.row("a")
                hold.go.set()
            else:
                hold.go.set()
                row = two.row("a")
            assert (coming.result(60).outcome, coming.result(60).job) == (Answered.BUFFERED, 0)
        assert two.begins_to_wait(row).answered
        two.ended("a")

    @pytest.mark.parametrize("answer_id", ["", "one"])
    @pytest.mark.parametrize("direct", [False, True])
    def test_the_same_answer_twice(
        self, two: Two, monkeypatch: pytest.MonkeyPatch, answer_id: str, direct: bool
    ) -> None:
        two.waiting("a", direct=direct)
        more: dict[str, Any] = {"answer_id": answer_id}
        first, second = meet(looked_answer(monkeypatch), lambda: two.answer("a", **more), lambda: _again(two, **more))
        assert first.outcome == Answered.MATCHED
        assert second.outcome == (Answered.DUPLICATE if answer_id or direct else Answered.BUFFERED)
        two.ended("a")
        assert sum(one.copies for one in inbox(two.store, two.queue)["a"]) == 2

    def test_a_settled_job_and_another_answer(self, two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
        two.waiting("a")
        two.answer("a", "first")
        turned = two.store.turn(two.engine_id, [], [Claim(two.queue, (TYPE,), 1)], two.store.now())
        (row,) = turned.won
        change = ends_by(row, turned.answers[row.id], two.store.now())
        came, saved = meet(looked_answer(monkeypatch), lambda: two.answer("a", "second"), lambda: two.save(change))
        assert came.outcome == Answered.BUFFERED
        assert [(one.job, one.state) for one in saved.placed] == [(row.id, "conflict")]
        assert two.ended("a").result == '"first"'

    def test_a_cancelled_job_and_its_answer(self, two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
        row = two.waiting("a")
        change = Change(row, transitions.cancelled(row, "not wanted", two.store.now()), (), "cancelled")
        came, saved = meet(looked_answer(monkeypatch), lambda: two.answer("a"), lambda: two.save(change))
        assert (came.outcome, saved.lost) == (Answered.MATCHED, {row.id})
        two.ended("a")

    @pytest.mark.parametrize("key", ["a", "ticket"])
    def test_a_retry_that_is_claimed_leaves_alone_what_has_its_answer(
        self, two: Two, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        row = two.asking("a", "ticket")
        two.save(
            Change(row, transitions.asked_again(row, Rerun(Fault("error", "x"), delay=0.0), ORDER, two.store.now()))
        )
        with looked_answer(monkeypatch) as hold, ThreadPoolExecutor(2) as pool:
            coming = pool.submit(two.answer, key)
            assert hold.there.wait(60)
            claiming = pool.submit(two.store.turn, two.engine_id, [], [Claim(two.queue, (TYPE,), 1)], two.store.now())
            threading.Event().wait(SHORT)
            hold.go.set()
            assert coming.result(60).outcome == Answered.MATCHED
            assert [one.phase for one in claiming.result(60).won if one.phase == EXECUTING] == []
        if claiming.result().won:
            two.save(ends_by(claiming.result().won[0], claiming.result().answers[row.id], two.store.now()))
        assert two.ended("a").attempt == 1


@contextmanager
def _same(hold: Held) -> Iterator[Held]:
    yield hold


def _again(two: Two, **more: Any) -> Delivered:
    """From the store object that has not begun one already: a thread of the same one would wait for its lock."""
    return two._replace(other=two.store).answer("a", **more)


class TestLocksOfKeys:
    def test_the_lock_of_a_key_stops_both_sides(self, two: Two, url: str) -> None:
        """Whoever holds it: neither side has looked before it has the lock."""
        if url.startswith("sqlite"):
            pytest.skip("there it is the lock of the database")
        row = two.row("before")
        with key_locked(url, lock_number((two.queue, "", TYPE, "a"))) as conn, ThreadPoolExecutor(2) as pool:
            coming = pool.submit(two.answer, "a")
            waits = pool.submit(two.begins_to_wait, row, "a")
            threading.Event().wait(SHORT)
            assert not coming.done()
            assert not waits.done()
            conn.commit()
            coming.result(60)
            waits.result(60)
        two.ended("before")

    def test_a_batch_with_a_key_twice_does_not_deadlock_with_the_end_of_its_job(
        self, two: Two, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The batch has written a copy of the first answer when it looks for the job of the second."""
        if url.startswith("sqlite"):
            pytest.skip("one transaction at a time")
        two.waiting("a")
        two.answer("a", "first", answer_id="1")
        turned = two.store.turn(two.engine_id, [], [Claim(two.queue, (TYPE,), 1)], two.store.now())
        (row,) = turned.won
        change = ends_by(row, turned.answers[row.id], two.store.now())
        now = two.store.now()
        batch = [
            answer(two.queue, "a", data, now, answer_id=job_id) for data, job_id in (("first", "1"), ("second", "2"))
        ]
        before = deadlocks(url)
        with held(monkeypatch, "mark_used", PostgresInbox, MariaInbox) as hold, ThreadPoolExecutor(2) as pool:
            saving = pool.submit(two.save, change)
            assert hold.there.wait(60)
            coming = pool.submit(two.other.answer, batch, now)
            threading.Event().wait(SHORT)
            hold.go.set()
            assert not saving.result(60).lost
            assert [one.outcome for one in coming.result(60)] == [Answered.DUPLICATE, Answered.CONFLICT]
        two.ended("a")
        assert deadlocks(url) == before


@contextmanager
def key_locked(url: str, number: int) -> Iterator[Any]:
    """A connection in a transaction that has locked a key as the store does."""
    if url.startswith("postgres"):
        with closing(psycopg.connect(url)) as conn:
            conn.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            yield conn
    else:
        with closing(pymysql.connect(**options_of(url))) as maria:
            query = "INSERT INTO hipq_locks (number) VALUES (%s) ON DUPLICATE KEY UPDATE taken = taken + 1"
            maria.cursor().execute(query, (number % LOCKS + 1,))
            yield maria


def deadlocks(url: str) -> int:
    """MariaDB counts only those of the whole server, where other tests are."""
    if not url.startswith("postgres"):
        return 0
    with closing(psycopg.connect(url, autocommit=True)) as conn:
        threading.Event().wait(1.1)  # a backend reports what it has counted about once a second
        found = conn.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert found is not None
    return int(found[0])


MANY = int(os.environ.get("HIPQ_RACES", "100"))
"""Rounds of the races that matter most; `make test-long` takes a thousand."""
ROUNDS = {
    "wait": MANY,
    "key of the wait": MANY,
    "own key": MANY,
    "failure": MANY,
    "time-out": MANY,
    "time-out of a wait with a key": MANY,
    "enqueue": MANY // 5,
    "different": MANY // 5,
    "same": MANY // 5,
    "direct different": MANY // 5,
    "direct same": MANY // 5,
    "cancel": MANY // 5,
    "settle": MANY // 5,
    "retry": MANY // 5,
    "retry of a wait with a key": MANY // 5,
    "batches": MANY // 10,
}


class Hammered(NamedTuple):
    left: dict[str, list[str]]
    right: dict[str, list[str]]
    jobs: dict[str, Row]
    answers: dict[str, list[Any]]
    """By the own keys of the jobs they belong to."""
    deadlocks: int

    def both(self, race: str) -> list[tuple[str, str]]:
        return list(zip(self.left[race], self.right[race], strict=True))

    def wrong(self, race: str, keys: list[str] | None = None) -> list[str]:
        """Of the jobs that must have ended by an answer, those that have not, and how."""
        keys = [f"{race}-{n}" for n in range(ROUNDS[race])] if keys is None else keys
        return [found for key in keys if (found := wrong(self.jobs[key], self.answers[key]))]


def hammered(url: str, folder: Path) -> Hammered:
    """Every race, by two processes; then what engines do, until there is nothing left to do."""
    with closing(open_store(url)) as store:
        store.migrate()
        queue = store.queue("races", "hammered", "races_hammered").number
        before = deadlocks(url)
        left, right = hammer.hammer(url, queue, ROUNDS, folder)
        engine_id = store.take_lease(scene.LEASE, "after")
        types = [hammer.type_of(race) for race in ROUNDS]
        drain(store, engine_id, queue, [*types, *hammer.retry_types(ROUNDS)])
        rows = jobs(store, queue)
        names = {row.id: key for key, row in rows.items()}
        answers: dict[str, list[Any]] = {}
        for some in inbox(store, queue).values():
            for one in some:
                answers.setdefault(names.get(one.job, one.job_key), []).append(one)
        return Hammered(left, right, rows, answers, deadlocks(url) - before)


class Races:
    """What must be true of all of them."""

    def many_waits_and_answers_none_lost(self, hammered: Hammered) -> None:
        for race in ("wait", "key of the wait", "own key"):
            assert hammered.wrong(race) == []
            orders = Counter(hammered.both(race))
            assert set(orders) == {("saved", "matched"), ("answered", "buffered")}, orders
            assert min(orders.values()) >= MANY // 50, f"it was no race: {orders}"

    def many_failures_and_answers_none_lost(self, hammered: Hammered) -> None:
        """One that came before a failure counts; so does one that comes before what follows from it."""
        both = hammered.both("failure")
        late = [n for n, (left, _) in enumerate(both) if n % 2 and left == "saved"]
        assert hammered.wrong("failure", [f"failure-{n}" for n in range(len(both)) if n not in set(late)]) == []
        for n, (left, right) in enumerate(both):
            assert right == {"answered": "buffered", "saved": "late" if n in late else "matched"}[left]
            job, (kept,) = hammered.jobs[f"failure-{n}"], hammered.answers[f"failure-{n}"]
            assert (job.code, kept.state) == (("error", "late") if n in late else ("ok", "settled"))
        orders = Counter((n % 2, left) for n, (left, _) in enumerate(both))
        assert len(orders) == 4
        assert min(orders.values()) >= MANY // 100, f"it was no race: {orders}"

    def many_time_outs_and_answers_one_wins(self, hammered: Hammered) -> None:
        for race in ("time-out", "time-out of a wait with a key"):
            self._one_wins(hammered, race)

    def _one_wins(self, hammered: Hammered, race: str) -> None:
        both = hammered.both(race)
        ends = [n for n, (left, _) in enumerate(both) if n % 2 and left == "saved"]
        by_answer = [f"{race}-{n}" for n in range(len(both)) if n not in set(ends)]
        assert hammered.wrong(race, by_answer) == []
        for n, (left, right) in enumerate(both):
            job, (kept,) = hammered.jobs[f"{race}-{n}"], hammered.answers[f"{race}-{n}"]
            if n in ends:
                assert (job.code, job.result, right, kept.state) == ("failed", "", "late", "late")
            else:
                assert (job.failures, right) == (1 if left == "saved" else 0, "matched")
        orders = Counter((n % 2, left) for n, (left, _) in enumerate(both))
        assert len(orders) == 4
        assert min(orders.values()) >= MANY // 100, f"it was no race: {orders}"

    def an_answer_to_a_job_that_is_being_added(self, hammered: Hammered) -> None:
        assert hammered.wrong("enqueue") == []
        assert set(hammered.both("enqueue")) == {("added", "buffered")}
        assert all(hammered.answers[f"enqueue-{n}"][0].job for n in range(ROUNDS["enqueue"]))

    def two_answers_first_wins(self, hammered: Hammered) -> None:
        assert hammered.wrong("different") == []
        assert hammered.wrong("direct different") == []
        assert {frozenset(one) for one in hammered.both("different")} == {frozenset({"matched", "buffered"})}
        assert {frozenset(one) for one in hammered.both("direct different")} == {frozenset({"matched", "conflict"})}
        for race in ("different", "direct different"):
            for n in range(ROUNDS[race]):
                assert [one.state for one in hammered.answers[f"{race}-{n}"]] == ["settled", "conflict"]

    def the_same_answer_twice(self, hammered: Hammered) -> None:
        assert hammered.wrong("same") == []
        assert hammered.wrong("direct same") == []
        for race in ("same", "direct same"):
            for n, both in enumerate(hammered.both(race)):
                second = "duplicate" if n % 2 or race == "direct same" else "buffered"
                assert set(both) == {"matched", second}
                kept = hammered.answers[f"{race}-{n}"]
                assert sum(one.copies for one in kept) == 2
                assert [one.state for one in kept[1:]] == ([] if second == "duplicate" else ["duplicate"])

    def a_cancelled_job_and_its_answer(self, hammered: Hammered) -> None:
        for n, (left, right) in enumerate(hammered.both("cancel")):
            job, (kept,) = hammered.jobs[f"cancel-{n}"], hammered.answers[f"cancel-{n}"]
            if left == "saved":
                assert (job.code, right, kept.state, kept.job) == ("cancelled", "late", "late", job.id)
            else:
                assert (left, right, wrong(job, [kept])) == ("lost", "matched", "")

    def the_end_of_an_answered_job_and_another_answer(self, hammered: Hammered) -> None:
        assert hammered.wrong("settle") == []
        assert {left for left, _ in hammered.both("settle")} == {"saved"}
        assert {right for _, right in hammered.both("settle")} == {"buffered", "conflict"}
        states = {tuple(one.state for one in hammered.answers[f"settle-{n}"]) for n in range(ROUNDS["settle"])}
        assert states == {("settled", "conflict")}

    def a_retry_and_an_answer(self, hammered: Hammered) -> None:
        for race in ("retry", "retry of a wait with a key"):
            assert hammered.wrong(race) == []
            for n, (left, right) in enumerate(hammered.both(race)):
                ran = left.startswith("ran")
                assert hammered.jobs[f"{race}-{n}"].attempt == (2 if ran else 1), (left, right)
                assert ran or right == "matched"

    def batches_in_opposite_order(self, hammered: Hammered) -> None:
        keys = [f"batches-{n}.{m}" for n in range(ROUNDS["batches"]) for m in range(hammer.BATCH)]
        assert hammered.wrong("batches", keys) == []
        for left, right in hammered.both("batches"):
            outcomes = {left, right}
            assert outcomes == {",".join([one] * hammer.BATCH) for one in ("matched", "buffered")}

    def nobody_deadlocked(self, hammered: Hammered) -> None:
        assert hammered.deadlocks == 0


def test_hammered_by_two_processes_no_answer_is_lost_or_counts_twice(url: str, tmp_path: Path) -> None:
    """One test, since to hammer takes long and a test of each race would do it again in each process of the suite."""
    seen, wrong = hammered(url, tmp_path), list[Exception]()
    for name, check in vars(Races).items():
        if not name.startswith("_"):
            try:
                check(Races(), seen)
            except AssertionError as error:
                error.add_note(name.replace("_", " "))
                wrong.append(error)
    if wrong:
        raise ExceptionGroup("races that went wrong", wrong)
