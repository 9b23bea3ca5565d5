"""Reading: reserved from the front, in order, each batch until the store has it and not any longer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hipq.errors import JournalError
from hipq.journal import Batch, Journal, Position
from hipq.journal import append as appending
from hipq.journal import reserve as reserving
from tests.journal.helpers import WAIT, Clock, batch, descriptors, drain, file, opened, reserve


class Store:
    """Takes batches in a transaction, with the position: compare and set."""

    def __init__(self) -> None:
        self.position: Position | None = None
        self.batches: list[Batch] = []

    def take(self, journal: Journal, count: int = 3) -> bool:
        token = journal.read_reserve(count, WAIT)
        if token is None:
            return False
        assert token.before == (self.position or Position(0, 0))
        self.batches += journal.read(token)
        self.position = token.after
        journal.rsync(token)
        return True


def test_batches_come_in_order_and_about_as_many_jobs_as_are_wanted(folder: Path) -> None:
    with opened(folder) as journal:
        for first, count in ((1, 3), (4, 3), (7, 10), (17, 1), (18, 1)):
            journal.write_now(batch(first, *[b"x"] * count))
        sizes = []
        before = Position(0, 0)
        while token := journal.read_reserve(6, WAIT):
            assert token.before == before
            assert token.jobs == sum(len(one.payloads) for one in journal.read(token))
            sizes.append([len(one.payloads) for one in journal.read(token)])
            before = token.after
        assert sizes == [[3, 3], [10], [1, 1]]
        assert journal.waiting_jobs == 18, "reserved is not forgotten"


def test_what_is_reserved_still_waits_until_the_store_has_it(folder: Path) -> None:
    with opened(folder) as journal:
        journal.write_now(batch(1, b"a", b"b"))
        waiting = journal.waiting_bytes
        token = reserve(journal, 100)
        assert (journal.waiting_jobs, journal.waiting_bytes) == (2, waiting)
        journal.write_now(batch(3))
        journal.rsync(token)
        assert journal.waiting_jobs == 1
        assert 0 < journal.waiting_bytes < waiting + 10
        assert drain(journal) == [batch(3)]
        assert (journal.waiting_jobs, journal.waiting_bytes) == (0, 0)


def test_a_reservation_of_large_batches_ends_early(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserving, "BYTES_AT_ONCE", 3000)
    with opened(folder) as journal:
        for number in range(5):
            journal.write_now(batch(number, b"x" * (5000 if number == 4 else 1000)))
        assert [len(journal.read(token)) for token in iter(lambda: journal.read_reserve(100, WAIT), None)] == [2, 2, 1]


def test_nothing_is_read_before_it_is_known_where_the_store_is(folder: Path) -> None:
    with opened(folder, start=False) as journal:
        journal.write_now(batch(1))
        assert not journal.wait(0)
        with pytest.raises(JournalError, match="start_at"):
            journal.read_reserve(1, 1)


def test_what_is_not_taken_in_time_goes_back_and_is_handed_out_again_first(folder: Path) -> None:
    clock = Clock()
    with opened(folder, clock=clock) as journal:
        for number in range(4):
            journal.write_now(batch(number))
        first, second = reserve(journal, 2, 10), reserve(journal, 1, 100)
        clock.now += 10
        assert journal.wait(0)
        with pytest.raises(JournalError, match="has run out"):
            journal.read(first)
        assert journal.read(second) == [batch(2)]
        again = reserve(journal, 1, 10)
        assert (again.before, again.after) == (first.before, first.after), "as it was, whatever is wanted now"
        assert journal.read(again) == [batch(0), batch(1)]
        with pytest.raises(JournalError, match="has run out"):
            journal.read(first)
        assert [one.first for one in journal.read(reserve(journal, 9, 10))] == [3]
        assert journal.read_reserve(1, 1) is None


def test_a_late_rsync_is_believed(folder: Path) -> None:
    """The store's transaction has committed: that it took long does not undo it."""
    clock = Clock()
    with opened(folder, clock=clock) as journal:
        journal.write_now(batch(1))
        journal.write_now(batch(2))
        late = reserve(journal, 1, 10)
        clock.now += 11
        again = reserve(journal, 1, 10)
        journal.rsync(late)
        assert journal.waiting_jobs == 1
        with pytest.raises(JournalError, match="has run out"):
            journal.read(again)
        journal.rsync(again)  # the store has refused it, and whoever calls this all the same changes nothing
        assert journal.waiting_jobs == 1
        assert drain(journal) == [batch(2)]


def test_reservations_taken_out_of_order_are_forgotten_in_order(folder: Path) -> None:
    clock = Clock()
    with opened(folder, clock=clock, segment_bytes=1) as journal:
        for number in range(3):
            journal.write_now(batch(number))
        tokens = [reserve(journal, 1, 10) for _ in range(3)]
        journal.rsync(tokens[2])
        journal.rsync(tokens[1])
        assert journal.waiting_jobs == 3
        assert file(folder, 1).exists()
        clock.now += 11
        assert journal.read(reserve(journal, 5, 10)) == [batch(0)], "only this one has gone back"
        assert journal.read_reserve(5, 10) is None
        journal.rsync(tokens[0])
        assert journal.waiting_jobs == 0
        assert not file(folder, 1).exists()


def test_segments_that_are_read_are_deleted_and_the_last_one_stays(folder: Path) -> None:
    with opened(folder, segment_bytes=1) as journal:
        for number in range(1, 6):
            journal.write_now(batch(number))
        assert len(list(folder.glob("*.journal"))) == 5
        token = reserve(journal, 2)
        journal.rsync(token)
        assert sorted(folder.glob("*.journal")) == [file(folder, number) for number in (3, 4, 5)]
        drain(journal)
        assert sorted(folder.glob("*.journal")) == [file(folder, 5)]


def test_what_the_store_has_is_removed_when_it_is_opened(folder: Path) -> None:
    with opened(folder, segment_bytes=1) as journal:
        for number in range(1, 6):
            journal.write_now(batch(number))
        after = [reserve(journal).after for _ in range(5)]
    for index in (1, 2, 2, 4):
        with opened(folder, position=after[index]) as journal:
            assert journal.found == []
            assert journal.waiting_jobs == 4 - index
            assert sorted(path.name for path in folder.glob("*.journal"))[0] >= file(folder, index + 1).name
            found = [one.first for one in journal.read(reserve(journal, 9))] if index < 4 else []
            assert found == list(range(index + 2, 6))


def test_a_store_that_is_asked_again_starts_where_it_is(folder: Path) -> None:
    """It lost its connection in a commit, so nobody knows whether it took the last ones."""
    with opened(folder) as journal:
        for number in range(1, 5):
            journal.write_now(batch(number))
        first, second = reserve(journal), reserve(journal)
        journal.start_at(first.after)
        with pytest.raises(JournalError, match="has run out"):
            journal.read(second)
        assert [one.first for one in drain(journal)] == [2, 3, 4]
        assert journal.waiting_jobs == 0


def test_closed_and_opened_again_at_every_step_nothing_is_lost_or_read_twice(folder: Path) -> None:
    store = Store()
    for number in range(0, 40, 2):
        with opened(folder, position=store.position, segment_bytes=700) as journal:
            journal.write_now(batch(number))
        with opened(folder, position=store.position, segment_bytes=700) as journal:
            assert journal.found == []
            journal.write_now(batch(number + 1))
            if number % 3 == 0:
                store.take(journal)
        with opened(folder, position=store.position) as journal:
            assert journal.waiting_jobs == number + 2 - len(store.batches)
    with opened(folder, position=store.position) as journal:
        while store.take(journal):
            pass
        assert (journal.waiting_jobs, journal.waiting_bytes) == (0, 0)
    assert [one.first for one in store.batches] == list(range(40))
    assert len(list(folder.glob("*.journal"))) == 1


def test_a_reader_beside_a_writer_sees_every_batch_once_and_in_order(folder: Path) -> None:
    store = Store()
    count = 2000
    with opened(folder, segment_bytes=20_000) as journal:

        def write() -> None:
            for number in range(count):
                journal.write(batch(number), lambda error: errors.append(error) if error else None)

        errors: list[Exception] = []
        thread = threading.Thread(target=write)
        thread.start()
        while len(store.batches) < count:
            assert journal.wait(WAIT)
            store.take(journal, 50)
        thread.join()
        assert [one.first for one in store.batches] == list(range(count))
        assert errors == []
        assert (journal.waiting_jobs, journal.waiting_bytes) == (0, 0)
        assert len(list(folder.glob("*.journal"))) <= 2


def test_after_everything_was_read_the_disk_has_its_room_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "TIDY_BYTES", 10_000)
    with opened(folder) as journal:
        journal.write_now(batch(1, b"x" * 20_000))
        before = descriptors()
        assert drain(journal) == [batch(1, b"x" * 20_000)]
        for _ in range(600):
            if not file(folder, 1).exists():
                break
            journal.wait(0.1)
        assert [path.stat().st_size < 200 for path in folder.glob("*.journal")] == [True]
        assert descriptors() <= before
        journal.write_now(batch(2))
        assert drain(journal) == [batch(2)]


def test_a_ring_wakes_who_waits(folder: Path) -> None:
    with opened(folder) as journal:
        woken: list[bool] = []
        thread = threading.Thread(target=lambda: woken.append(journal.wait(WAIT * 10)))
        thread.start()
        journal.notify()
        thread.join(WAIT)
        assert woken == [False]
        journal.write_now(batch(1))
        assert journal.wait(WAIT)
        token = reserve(journal)
        assert not journal.wait(0)
        journal.rsync(token)


def test_a_backlog_is_not_kept_in_memory(folder: Path) -> None:
    import tracemalloc

    with opened(folder, segment_bytes=1 << 20) as journal:
        for number in range(40):
            journal.write_now(batch(number, b"x" * 500_000))
        tracemalloc.start()
        try:
            while token := journal.read_reserve(1, WAIT):
                journal.rsync(token)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 8 << 20, "twenty megabytes were read"
