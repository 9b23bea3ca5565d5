"""Many posts, few syncs; in the event loop while the disk is quick, in the journal's thread when it is not."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq.daemon import written
from hipq.daemon.written import Written
from hipq.errors import JournalBroken
from hipq.journal import Batch, Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = Journal(tmp_path / "journal")
    found.start_at(None)
    yield found
    found.close()


def batch(n: int, payload: bytes = b"x") -> Batch:
    return Batch("acme", "resize", n, (payload,), 0)


def kept(journal: Journal) -> list[int]:
    found: list[int] = []
    while token := journal.read_reserve(1000, 60):
        found += [one.first for one in journal.read(token)]
        journal.rsync(token)
    return found


def watched(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> list[int]:
    """The threads that sync, as they do; so much longer than it takes."""
    threads: list[int] = []
    sync = os.fdatasync

    def watching(fd: int) -> None:
        time.sleep(seconds)
        sync(fd)
        threads.append(threading.get_ident())

    monkeypatch.setattr(os, "fdatasync", watching)
    return threads


async def write(writing: Written, one: Batch) -> None:
    """It is on disk when this returns."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    writing.put(one, lambda error: future.set_exception(error) if error else future.set_result(None))
    await future


async def all_of(writing: Written, numbers: range, payload: bytes = b"x") -> None:
    await asyncio.gather(*(write(writing, batch(n, payload)) for n in numbers))


def test_what_comes_in_one_round_is_one_sync(journal: Journal) -> None:
    asyncio.run(all_of(Written(journal), range(500)))
    assert journal.syncs <= 3
    assert kept(journal) == list(range(500))


def test_it_is_on_disk_when_it_returns(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = watched(monkeypatch)

    async def one_by_one() -> None:
        writing = Written(journal)
        for n in range(20):
            before = len(synced)
            await write(writing, batch(n))
            assert len(synced) > before

    asyncio.run(one_by_one())
    assert kept(journal) == list(range(20))


def test_a_slow_disk_does_not_hold_the_loop_up(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = watched(monkeypatch, 0.02)

    async def one_by_one() -> None:
        writing = Written(journal)
        for n in range(10):
            await write(writing, batch(n))

    asyncio.run(one_by_one())
    assert threads[0] == threading.get_ident()
    assert threading.get_ident() not in threads[1:]
    assert kept(journal) == list(range(10))


def test_a_disk_that_was_slow_is_tried_again(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "AGAIN", 5)
    monkeypatch.setattr(written, "QUICK", -1.0)
    threads = watched(monkeypatch)

    async def until_it_is() -> None:
        writing = Written(journal)
        for n in range(5000):  # the journal's thread may be about to fall asleep when the time comes
            await write(writing, batch(n))
            if threads.count(threading.get_ident()) == 2:
                return

    asyncio.run(until_it_is())
    assert threads.count(threading.get_ident()) == 2
    assert threads[0] == threading.get_ident()
    assert threading.get_ident() not in threads[1:6]


def test_a_large_one_is_written_by_the_journals_thread(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = watched(monkeypatch)
    asyncio.run(write(Written(journal), batch(0, b"x" * written.SMALL)))
    assert threading.get_ident() not in threads


def test_a_failed_sync_is_everybodys_and_for_good(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    async def tried() -> list[BaseException | None]:
        writing = Written(journal)
        first = await asyncio.gather(*(write(writing, batch(n)) for n in range(3)), return_exceptions=True)
        monkeypatch.undo()
        return [*first, *await asyncio.gather(write(writing, batch(9)), return_exceptions=True)]

    monkeypatch.setattr(os, "fdatasync", broken)
    found = asyncio.run(tried())
    assert [type(one) for one in found] == [JournalBroken] * 4


def test_loops_and_threads_write_beside_each_other(journal: Journal) -> None:
    def from_a_loop(start: int) -> None:
        async def some() -> None:
            writing = Written(journal)
            for n in range(start, start + 200, 10):
                await all_of(writing, range(n, n + 10))

        asyncio.run(some())

    def from_a_thread(start: int) -> None:
        for n in range(start, start + 50):
            journal.write_now(batch(n))

    threads = [threading.Thread(target=from_a_loop, args=(1000 * n,)) for n in range(4)]
    threads += [threading.Thread(target=from_a_thread, args=(1000 * n + 500,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = {1000 * n + k for n in range(4) for k in range(200)} | {
        1000 * n + 500 + k for n in range(4) for k in range(50)
    }
    found = kept(journal)
    assert len(found) == len(expected)
    assert set(found) == expected
