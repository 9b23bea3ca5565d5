"""Notes, which programs leave for each other; and answers that are for no job, or for one job only."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hipq.job.when import SECOND
from hipq.stores.filters import AnswerFilter
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.jobs import NOW, add_one, answer, bring, finish, new, row_of
from tests.contract.together import at_once


class TestNotes:
    def test_what_one_program_writes_another_reads(self, store: Store, other: Store, app: str) -> None:
        assert store.notes(app) == {}
        assert store.change_note(app, "sky", lambda before: before + "blue") == "blue"
        assert store.change_note(app, "snow", lambda _: "white ☃ 'quoted'") == "white ☃ 'quoted'"
        assert store.change_note(f"{app}-size", "sky", lambda _: "large") == "large"
        assert other.notes(app) == {"sky": "blue", "snow": "white ☃ 'quoted'"}
        assert list(other.notes(app, "s")) == ["sky", "snow"]
        assert list(other.notes(app, "sn")) == ["snow"]
        assert other.notes(app, "S") == other.notes(app, "snows") == {}
        assert other.change_note(app, "sky", lambda before: f"dark {before}") == "dark blue"
        assert store.notes(app)["sky"] == "dark blue"

    def test_one_that_is_empty_is_not_there(self, store: Store, app: str) -> None:
        store.change_note(app, "sky", lambda _: "blue")
        assert store.change_note(app, "sky", lambda _: "") == ""
        assert store.change_note(app, "grass", lambda before: before) == ""
        assert store.notes(app) == {}
        assert store.change_note(app, "sky", lambda before: f"{before}grey") == "grey"

    def test_a_change_that_raises_changes_nothing(self, store: Store, app: str) -> None:
        store.change_note(app, "sky", lambda _: "blue")

        def wrong(_: str) -> str:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.change_note(app, "sky", wrong)
        assert store.change_note(app, "sky", lambda before: before) == "blue"

    def test_changes_at_the_same_time_all_count(self, stores: list[Store], app: str) -> None:
        def add(n: int) -> None:
            for _ in range(20):
                stores[n % 4].change_note(app, "all", lambda before: str(int(before or 0) + 1))

        at_once(add)
        assert stores[0].notes(app) == {"all": "160"}


class TestAnswersForNoJob:
    def test_what_cannot_be_read_is_kept_with_its_reason(self, store: Store, engine: int, queue: QueueTables) -> None:
        waiting = bring(store, engine, queue.number, "waiting", key="k")
        bad = [
            replace(answer(queue.number, "", data='"?"', answer_id=f"m{n}"), unreadable=f"no key {n}") for n in range(3)
        ]
        delivered = store.answer([bad[0], answer(queue.number, "k"), *bad[1:]], NOW)
        assert [one.outcome for one in delivered] == ["unreadable", "matched", "unreadable", "unreadable"]
        kept = store.answers(AnswerFilter(queue.number, state="unreadable"))
        assert [(one.job, one.job_key, one.answer_id, one.note) for one in kept] == [
            (0, "", f"m{n}", f"no key {n}") for n in range(3)
        ]
        assert row_of(store, waiting.id).phase == "answered"

    def test_it_is_kept_once_however_often_it_is_delivered(self, store: Store, queue: QueueTables) -> None:
        bad = replace(answer(queue.number, "", answer_id="m1"), unreadable="no key")
        assert store.answer([bad], NOW)[0].outcome == "unreadable"
        assert store.answer([bad], NOW + SECOND)[0].outcome == "duplicate"
        (kept,) = store.answers(AnswerFilter(queue.number))
        assert (kept.state, kept.copies) == ("unreadable", 2)

    def test_a_job_whose_key_is_empty_is_not_given_it(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "waiting", key="x")
        bad = replace(answer(queue.number, "x"), job_key="", unreadable="no key")
        store.answer([bad], NOW)
        assert row_of(store, row.id) == row


class TestAnswersForOneJob:
    def test_the_job_it_names_has_it(self, store: Store, engine: int, queue: QueueTables) -> None:
        row = bring(store, engine, queue.number, "waiting", key="k")
        (delivered,) = store.answer([answer(queue.number, "k", job=row.id)], NOW)
        assert (delivered.outcome, delivered.job) == ("matched", row.id)

    def test_another_job_that_has_the_key_by_now_does_not(self, store: Store, engine: int, queue: QueueTables) -> None:
        first = finish(store, bring(store, engine, queue.number, "executing", key="k"))
        second = bring(store, engine, queue.number, "waiting", key="k")
        (delivered,) = store.answer([answer(queue.number, "k", job=first.id)], NOW)
        assert (delivered.outcome, delivered.job) == ("late", first.id)
        assert row_of(store, second.id) == second
        (kept,) = store.answers(AnswerFilter(queue.number))
        assert (kept.state, kept.job) == ("late", first.id)

    def test_nor_one_that_is_added_later(self, store: Store, queue: QueueTables) -> None:
        gone = add_one(store, new(queue.number, "other"))
        (delivered,) = store.answer([answer(queue.number, "k", job=gone)], NOW)
        assert (delivered.outcome, delivered.job) == ("late", gone)
        job_id = add_one(store, new(queue.number, "k"))
        assert store.answers(AnswerFilter(queue.number, job=job_id)) == []
