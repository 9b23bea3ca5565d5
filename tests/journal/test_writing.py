"""Writing: acknowledged means on disk, syncs are shared, and nobody waits for an answer that never comes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hipq.errors import Invalid, JournalBehind, JournalError
from hipq.journal import Journal
from hipq.journal import append as appending
from tests.journal.helpers import WAIT, batch, descriptors, drain, examined, file, opened, readable


class Gate:
    """A disk that syncs only when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self._let = threading.Semaphore(0), threading.Semaphore(0)
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.entered.release()
        assert self._let.acquire(timeout=WAIT)
        self._real(descriptor)

    def until_it_syncs(self) -> None:
        assert self.entered.acquire(timeout=WAIT)

    def let(self, times: int = 1) -> None:
        self._let.release(times)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


class Answers:
    """What became of batches, in the order it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Exception | None]] = []
        self._more = threading.Condition()

    def of(self, number: int) -> Callable[[Exception | None], None]:
        def done(error: Exception | None) -> None:
            with self._more:
                self.told.append((number, error))
                self._more.notify_all()

        return done

    def wait(self, count: int) -> list[tuple[int, Exception | None]]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.told) >= count, WAIT)
            return list(self.told)


def test_a_batch_is_acknowledged_after_it_is_synced_and_not_before(folder: Path, gate: Gate) -> None:
    answers = Answers()
    with opened(folder) as journal:
        journal.write(batch(1), answers.of(1))
        gate.until_it_syncs()
        assert batch(1) in examined(folder)[0], "it is written"
        assert answers.told == []
        assert journal.read_reserve(1, 1) is None, "nothing that is not synced is read"
        assert (journal.waiting_jobs, journal.wait(0)) == (0, False)
        gate.let()
        assert answers.wait(1) == [(1, None)]
        assert journal.wait(WAIT)
        assert drain(journal) == [batch(1)]


def test_what_gathers_during_a_sync_shares_the_next_one(folder: Path, gate: Gate) -> None:
    answers = Answers()
    with opened(folder) as journal:
        journal.write(batch(1), answers.of(1))
        gate.until_it_syncs()
        for number in range(2, 502):
            journal.write(batch(number), answers.of(number))
        gate.let(2)
        assert answers.wait(501) == [(number, None) for number in range(1, 502)]
        assert journal.syncs == 2
        assert [one.first for one in drain(journal)] == list(range(1, 502)), "in the order they were written"


def test_what_the_journals_thread_was_called_for_is_not_written_by_a_thread_that_others_wait_for(folder: Path) -> None:
    wrote: list[str] = []
    with opened(folder) as journal:
        for number in range(1, 100, 2):
            synced = threading.Event()
            large = batch(number, bytes(100_000))
            journal.write(large, lambda _: wrote.append(threading.current_thread().name))
            journal.write(batch(number + 1), lambda _, synced=synced: synced.set(), wake=False)  # type: ignore[misc]
            journal.write_here()
            assert synced.wait(WAIT)
    assert set(wrote) == {"hipq-journal"}


def test_hundreds_of_writers_share_syncs_and_all_are_acknowledged_once(folder: Path) -> None:
    writers, each = 200, 10
    answers = Answers()
    with opened(folder) as journal:

        def write(writer: int) -> None:
            for number in range(each):
                journal.write(
                    batch(writer * each + number, tenant=f"tenant{writer}"), answers.of(writer * each + number)
                )

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told = answers.wait(writers * each)
        assert Counter(told) == Counter((number, None) for number in range(writers * each))
        assert journal.syncs < writers * each / 5
        found = drain(journal)
    assert [one.first for one in found] == [number for number, _ in told], "on disk as they were acknowledged"
    for writer in range(writers):
        own = [one.first for one in found if one.tenant == f"tenant{writer}"]
        assert own == list(range(writer * each, writer * each + each)), "each writer's in its order"


def test_wsync_returns_when_all_before_it_is_on_disk(folder: Path, gate: Gate) -> None:
    answers = Answers()
    with opened(folder) as journal:
        synced = threading.Event()
        journal.write(batch(1), answers.of(1))
        gate.until_it_syncs()
        journal.write(batch(2), answers.of(2))

        def wsync() -> None:
            journal.wsync()
            synced.set()

        thread = threading.Thread(target=wsync)
        thread.start()
        gate.let()
        gate.until_it_syncs()
        assert [number for number, _ in answers.wait(1)] == [1]
        assert not synced.is_set()
        gate.let()
        assert synced.wait(WAIT)
        thread.join()
        assert len(answers.told) == 2
        journal.wsync()  # with nothing to wait for it returns
        assert journal.syncs == 2


def test_closing_writes_what_was_given_before(folder: Path) -> None:
    answers = Answers()
    with opened(folder) as journal:
        for number in range(100):
            journal.write(batch(number), answers.of(number))
    assert answers.told == [(number, None) for number in range(100)]
    assert [one.first for one in readable(folder)] == list(range(100))


def test_a_closed_journal_takes_nothing_and_can_be_closed_again(folder: Path) -> None:
    before, threads = descriptors(), threading.active_count()
    journal = Journal(folder)
    journal.start_at(None)
    journal.write_now(batch(1))
    token = journal.read_reserve(1, WAIT)
    assert token
    journal.close()
    journal.close()
    for use in (
        lambda: journal.write_now(batch(2)),
        journal.wsync,
        lambda: journal.read(token),
        lambda: journal.rsync(token),
        lambda: journal.wait(0),
        lambda: journal.start_at(None),
    ):
        with pytest.raises(JournalError, match="the journal is closed"):
            use()
    assert (descriptors(), threading.active_count()) == (before, threads)


def test_who_fails_at_being_told_harms_nobody_else(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    answers = Answers()

    def failing(_: Exception | None) -> None:
        raise RuntimeError("the loop is closed")

    with opened(folder) as journal:
        journal.write(batch(1), failing)
        journal.write(batch(2), answers.of(2))
        assert answers.wait(1) == [(2, None)]
        journal.write_now(batch(3))
    assert "what was to be told of a batch in the journal failed" in caplog.text


def test_a_journal_that_is_behind_says_so_at_once_and_takes_more_when_it_is_read(folder: Path) -> None:
    with opened(folder, most_bytes=10_000) as journal:
        for number in range(7):
            journal.write_now(batch(number, b"x" * 1000))
        with pytest.raises(JournalBehind, match="7,987 bytes wait to be taken into the store already"):
            journal.write_now(batch(7, b"x" * 2000))
        assert journal.waiting_jobs == 7
        assert len(drain(journal)) == 7
        assert (journal.waiting_bytes, journal.waiting_jobs) == (0, 0)
        journal.write_now(batch(100, b"x" * 1000))


def test_what_gathers_in_memory_has_a_limit(folder: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "GATHER_MOST", 5000)
    answers = Answers()
    with opened(folder) as journal:
        journal.write(batch(0), answers.of(0))
        gate.until_it_syncs()
        for number in (1, 2, 3):
            journal.write(batch(number, b"x" * 1000), answers.of(number))
        with pytest.raises(JournalBehind, match="the disk does not keep up"):
            journal.write(batch(4, b"x" * 1000), answers.of(4))
        gate.let(100)
        assert answers.wait(4) == [(number, None) for number in range(4)]
        journal.write_now(batch(200, b"x" * 10_000))  # alone, one may be larger


def test_a_batch_that_can_never_fit_is_refused(folder: Path) -> None:
    with opened(folder, most_bytes=10_000) as journal:
        with pytest.raises(Invalid, match="more than this journal may hold, 10,000"):
            journal.write_now(batch(1, b"x" * 10_000))
        with pytest.raises(Invalid):
            journal.write_now(batch(1, tenant="a-b"))
        assert file(folder, 1).stat().st_size < 200


@pytest.mark.parametrize("settings", [{"segment_bytes": 0}, {"most_bytes": 0}, {"segment_bytes": 1 << 60}])
def test_sizes_that_make_no_sense_are_refused(folder: Path, settings: dict[str, int]) -> None:
    with pytest.raises(Invalid):
        Journal(folder, **settings)  # type: ignore[arg-type]
    assert not folder.exists()


def test_segments_are_begun_when_they_are_full_and_a_large_batch_has_one_of_its_own(folder: Path, gate: Gate) -> None:
    answers = Answers()
    sizes = [500, 500, 500, 500, 5000, 500, 5000, 10]
    with opened(folder, segment_bytes=1500) as journal:
        for number, size in enumerate(sizes):
            journal.write(batch(number, b"x" * size), answers.of(number))
        gate.let(100)
        answers.wait(len(sizes))
        lengths = [path.stat().st_size for path in sorted(folder.glob("*.journal"))]
        assert len(lengths) == 6
        assert all(length < 1500 or length > 5000 for length in lengths)
        assert [one.first for one in drain(journal)] == list(range(len(sizes)))


def test_a_forked_child_never_writes_and_does_not_keep_the_lock(folder: Path) -> None:
    journal = Journal(folder)
    journal.start_at(None)
    journal.write_now(batch(1))
    asked, told = os.pipe()
    stay, go = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        try:
            signal.alarm(30)  # who forgets to refuse waits for a thread that is not here
            said = b""
            for use in (lambda: journal.write(batch(2), lambda _: None), journal.wsync, lambda: journal.wait(0)):
                try:
                    use()
                except JournalError as error:
                    said += str(error).encode() + b"\n"
            journal.close()
            os.write(told, said)
            os.close(go)
            os.read(stay, 1)
        finally:
            os._exit(0)
    os.close(told)
    assert os.read(asked, 10_000).count(b"a forked one must not use it") == 3
    journal.write_now(batch(3))
    journal.close()
    with opened(folder) as again:  # while the child lives
        assert drain(again) == [batch(1), batch(3)]
    os.close(go)
    os.waitpid(child, 0)
    os.close(asked)
    os.close(stay)


def test_a_write_does_not_wait_for_the_disk(folder: Path, gate: Gate) -> None:
    """An event loop calls it: with the disk stuck, a thousand writes return."""
    answers = Answers()
    with opened(folder) as journal:
        journal.write(batch(0), answers.of(0))
        gate.until_it_syncs()
        began = time.monotonic()
        for number in range(1, 1001):
            journal.write(batch(number), answers.of(number))
        assert time.monotonic() - began < WAIT
        assert answers.told == []
        gate.let(10)
        assert len(answers.wait(1001)) == 1001
