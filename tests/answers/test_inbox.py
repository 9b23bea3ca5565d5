"""`app.answers` and `answer_many`: looking at answers, giving them another chance, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hipq import Conflict, Hipq, Invalid, JobType, NotFound, Queue, Wait
from hipq.testing.clock import HandClock
from tests.answers.helping import Bank, Run, kept


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def charge(queue: Queue, bank: Bank) -> JobType:
    return bank.charge(queue)


sqlite_only = pytest.mark.parametrize("url", ["sqlite://"], ids=["refused before any store"])


def item(key: str, data: Any = None, queue: str = "orders", job_type: str = "charge", **more: Any) -> dict[str, Any]:
    return {"queue": queue, "type": job_type, "key": key, "data": data, **more}


def test_answers_are_listed_in_the_order_they_came_page_by_page(app: Hipq, charge: JobType, clock: HandClock) -> None:
    others = app.queue("others")
    for n in range(6):
        app.answer("others" if n % 2 else "orders", "charge", f"k{n}", n, answer_id=f"m{n}")
        clock.advance(seconds=1)
    charge.answer("k0", 0, answer_id="m0")
    every = app.answers.list()
    assert [one.data for one in every] == list(range(6))
    assert [one.data for one in app.answers.list(after=every[1].id, limit=2)] == [2, 3]
    assert [one.data for one in app.answers.list(others.name)] == [1, 3, 5]
    assert [one.data for one in app.answers.list(key="k4", type="charge", state="buffered")] == [4]
    assert app.answers.list(type="refund") == app.answers.list(state="late") == app.answers.list(job=1) == []
    first = every[0]
    assert (first.key, first.type, first.answer_id, first.copies, first.job) == ("k0", "charge", "m0", 2, 0)
    assert (first.error, first.attempt, first.state) == (False, 0, "buffered")
    assert (first.keep_until - first.arrived).days == 7
    assert {state: tuple(count) for state, count in app.answers.counts().items()} == {"buffered": (6, 7)}
    assert {state: tuple(count) for state, count in app.answers.counts("others").items()} == {"buffered": (3, 3)}


def test_show_has_one_by_its_number(app: Hipq, charge: JobType) -> None:
    charge.answer("k", {"a": "ü"}, error=True, attempt=3)
    (only,) = app.answers.list()
    shown = app.answers.show(only.id)
    assert (shown.data, shown.error, shown.attempt) == ({"a": "ü"}, True, 3)


def test_what_is_not_there_is_not_found(app: Hipq, charge: JobType) -> None:
    assert charge.name == "charge"
    for verb in (app.answers.show, app.answers.replay, app.answers.drop, lambda job_id: app.answers.rekey(job_id, "k")):
        with pytest.raises(NotFound, match="99"):
            verb(99)


@sqlite_only
@pytest.mark.parametrize("answer_id", [0, -1, True, "1", 1 << 63, None])
def test_a_number_that_is_none_is_invalid(app: Hipq, charge: JobType, answer_id: Any) -> None:
    assert charge.name == "charge"
    for verb in (
        app.answers.show,
        app.answers.replay,
        app.answers.drop,
        lambda answer_id: app.answers.rekey(answer_id, "k"),
    ):
        with pytest.raises(Invalid):
            verb(answer_id)


@pytest.mark.parametrize(
    "wanted",
    [
        {"queue": "nowhere"}, {"state": "lost"}, {"limit": 0}, {"limit": 10_001}, {"after": -1}, {"job": -1},
        {"key": "\x00"}, {"key": "\ud800"}, {"type": "\x00"}, {"type": "\ud800"}, {"key": 5}, {"type": ["x"]},
    ],
)  # fmt: skip
def test_a_filter_that_is_none_is_invalid(app: Hipq, charge: JobType, wanted: Any) -> None:
    charge.answer("k", 1)
    with pytest.raises(Invalid):
        app.answers.list(**wanted)


def test_a_late_answer_can_be_replayed_to_the_job_that_has_the_key_now(app: Hipq, charge: JobType, run: Run) -> None:
    first = charge.enqueue(key="k")
    run()
    app.cancel(first)
    assert charge.answer("k", "x", answer_id="m", attempt=1) == "late"
    second = charge.enqueue(key="k")
    run()
    (late,) = app.answers.list()
    replayed = app.answers.replay(late.id)
    assert (replayed.outcome, replayed.job, app.job(second).result) == ("matched", second, "x")
    (only,) = app.answers.list()
    assert (only.id, only.state, only.answer_id, only.job) == (replayed.id, "settled", "m", second)


def test_an_answer_can_be_given_another_type_too(app: Hipq, queue: Queue, charge: JobType, run: Run) -> None:
    refund = queue.job("refund")(lambda _: Wait())
    job_id = refund.enqueue(key="r")
    run()
    charge.answer("k", "no", error=True)
    (lost,) = app.answers.list()
    assert app.answers.rekey(lost.id, "r", type="refund").outcome == "matched"
    run()
    assert (app.job(job_id).state, app.job(job_id).code) == ("final", "error"), "it still says that the work failed"


def test_what_was_used_cannot_be_replayed(app: Hipq, charge: JobType, run: Run, bank: Bank) -> None:
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    (only,) = app.answers.list()
    for state in ("matched", "settled"):
        assert app.answers.show(only.id).state == state
        with pytest.raises(Conflict, match=state):
            app.answers.replay(only.id)
        with pytest.raises(Conflict, match=state):
            app.answers.rekey(only.id, "other")
        run()
    assert app.job(job_id).result == "x"


def test_a_bad_new_key_leaves_the_answer_as_it_was(app: Hipq, charge: JobType) -> None:
    charge.answer("k", "x")
    (only,) = app.answers.list()
    for key, job_type in (("", "charge"), ("\x00", "charge"), ("k", "no type"), (5, "charge")):
        with pytest.raises(Invalid):
            app.answers.rekey(only.id, key, type=job_type)  # type: ignore[arg-type]
    assert app.answers.list()[0].id == only.id


def test_drop_deletes_what_no_job_is_about_to_look_at(app: Hipq, charge: JobType, run: Run, bank: Bank) -> None:
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    charge.answer("nobody", "y")
    mine, lost = app.answers.list()
    app.answers.drop(lost.id)
    with pytest.raises(Conflict, match=str(job_id)):
        app.answers.drop(mine.id)
    run()
    assert app.job(job_id).result == "x"
    app.answers.drop(mine.id)
    assert app.answers.list() == []


def test_what_a_job_is_about_to_look_at_is_never_pruned(
    app: Hipq, charge: JobType, run: Run, bank: Bank, clock: HandClock
) -> None:
    bank.answered(charge)
    job_id = charge.enqueue(key="k")
    run()
    charge.answer("k", "x")
    clock.advance(days=30)
    assert app.answers.prune() == 0
    run()
    assert app.job(job_id).result == "x"


def test_late_answers_and_conflicts_are_kept_longer_than_used_ones(
    app: Hipq, charge: JobType, run: Run, clock: HandClock
) -> None:
    charge.enqueue(key="k")
    run()
    assert [charge.answer("k", n) for n in (1, 2)] == ["matched", "conflict"]
    clock.advance(days=1, seconds=1)
    run()
    assert kept(app) == [(2, "conflict")]
    clock.advance(days=6)
    run()
    assert kept(app) == []


# -- many at once ----------------------------------------------------------------------------------------------------
def test_many_answers_to_several_queues_are_told_what_became_of_each(app: Hipq, charge: JobType, run: Run) -> None:
    other = app.queue("others").job("charge")(lambda _: Wait())
    ids = [charge.enqueue(key="a"), charge.enqueue(key="b"), other.enqueue(key="a")]
    run()
    words = app.answer_many(
        [item("a", 1), item("a", 1, "others"), item("a", 2), item("b", 3), item("a", 1), item("c", 4), item("c", 5)]
    )
    assert words == ["matched", "matched", "conflict", "matched", "duplicate", "buffered", "buffered"]
    assert [app.job(job_id).result for job_id in ids] == [1, 3, 1]
    assert [one.data for one in app.answers.list(key="c")] == [4, 5]


def test_several_answers_to_one_key_in_one_batch_keep_their_order(
    app: Hipq, charge: JobType, run: Run, bank: Bank
) -> None:
    from hipq import Progress

    bank.answered(charge, lambda n: n if n == 9 else Progress())
    job_id = charge.enqueue(key="k")
    run()
    words = app.answer_many(item("k", n, answer_id=f"m{n % 10}") for n in range(12))
    assert words == ["matched", *["buffered"] * 9, "duplicate", "duplicate"]
    run()
    assert (app.job(job_id).result, bank.looked) == (9, list(range(10)))


def test_more_than_a_thousand_at_once(app: Hipq, charge: JobType, run: Run) -> None:
    charge.enqueue_many(range(50), keys=[f"k{n}" for n in range(0, 2500, 50)])
    run()
    words = app.answer_many(item(f"k{n}", n) for n in range(2500))
    assert words == ["buffered" if n % 50 else "matched" for n in range(2500)]
    results = {job.key: job.result for job in app.jobs("orders", state="final")}
    assert results == {f"k{n}": n for n in range(0, 2500, 50)}
    assert app.answer_many([]) == []


@pytest.mark.parametrize(
    "bad",
    [
        None, "x", {}, item("k", queue="nowhere"), item("k", type="no type"), item(""), item("k", float("nan")),
        item("k", colour="red"), item("k", attempt=0), item("k", error="no"), item("k", answer_id=""),
        {"queue": "orders", "type": "charge"}, item("k") | {"queue": ["orders"]},
    ],
)  # fmt: skip
@sqlite_only
def test_one_bad_answer_refuses_all_before_anything_is_stored(app: Hipq, charge: JobType, run: Run, bad: Any) -> None:
    job_id = charge.enqueue(key="k")
    run()
    with pytest.raises(Invalid):
        app.answer_many([*(item(f"k{n}") for n in range(1500)), item("k", 1), bad])
    assert (app.job(job_id).phase, app.answers.list()) == ("waiting", [])


@pytest.mark.parametrize(
    "bad",
    [
        {"queue": "nowhere"}, {"queue": ""}, {"queue": None}, {"queue": ["orders"]}, {"type": "no type"}, {"type": ""},
        {"type": None}, {"type": "x" * 201}, {"key": ""}, {"key": "x" * 501}, {"key": "a\x00"}, {"key": "\ud800"},
        {"key": 5}, {"key": None}, {"data": float("nan")}, {"data": float("inf")}, {"data": {"a": "\x00"}},
        {"data": "\ud800"}, {"data": 1 << 63}, {"data": object()}, {"data": "x" * (16 << 20)}, {"answer_id": ""},
        {"answer_id": "x" * 501}, {"answer_id": "a\x00"}, {"answer_id": "\ud800"}, {"answer_id": 5}, {"error": 1},
        {"error": None}, {"attempt": 0}, {"attempt": -1}, {"attempt": True}, {"attempt": 1.5}, {"attempt": 1 << 63},
    ],
    ids=lambda bad: f"{bad!r:.25}".encode("ascii", "backslashreplace").decode(),
)  # fmt: skip
@sqlite_only
def test_bad_input_is_refused_in_a_sentence(app: Hipq, charge: JobType, bad: Any) -> None:
    assert charge.name == "charge"
    with pytest.raises(Invalid) as raised:
        app.answer(**(item("k", 1) | bad))
    assert 10 < len(str(raised.value)) < 400
    assert app.answers.list() == []


@pytest.mark.parametrize("data", [(1 << 63) - 1, -(1 << 63), "𝄞" * 1000, "x" * 5_000_000, {"": {"": []}}, 1e308, None])
def test_what_json_has_comes_back_as_it_was(app: Hipq, charge: JobType, run: Run, data: Any) -> None:
    charge.answer("k" * 500, data, answer_id="ü" * 500)
    job_id = charge.enqueue(key="k" * 500)
    run()
    assert app.job(job_id).result == app.answers.list()[0].data == data
