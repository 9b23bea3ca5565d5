"""What comes in one round of the event loop is one batch for each tenant, type and options; each hears of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hipq.daemon.ids import Block, Ids
from hipq.daemon.written import SMALL, Gathered, Written
from hipq.errors import JournalBroken, StoreUnavailable
from hipq.journal import Batch, Journal
from hipq.stores.open import open_store

Heard = dict[str, int | Exception]


class Rig:
    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "journal")
        self.journal.start_at(None)
        self.store = open_store("sqlite://")
        self.store.migrate()
        self.ids = Ids(self.store, 1)
        self.ids.reserve()
        self.gathered = Gathered(Written(self.journal), self.ids, lambda: 1_782_000_000_000_000)
        self.heard: Heard = {}

    def put(self, name: str, jobtype: str, *payloads: bytes, tenant: str = "acme", options: str = "{}") -> None:
        self.gathered.put(tenant, jobtype, payloads, options, sum(map(len, payloads)), self.hears(name))

    def hears(self, name: str) -> Callable[[int | Exception], None]:
        def done(what: int | Exception) -> None:
            assert name not in self.heard, "once"
            self.heard[name] = what

        return done

    async def all_heard(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.heard) < count:
                await asyncio.sleep(0)

    def batches(self) -> list[Batch]:
        found: list[Batch] = []
        while token := self.journal.read_reserve(1000, 60):
            found += self.journal.read(token)
            self.journal.rsync(token)
        return found


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(tmp_path)
    yield found
    found.journal.close()
    found.store.close()


def test_one_batch_for_a_tenant_type_and_options_and_ids_in_order(rig: Rig) -> None:
    async def come() -> None:
        rig.put("a", "resize", b"1", b"2")
        rig.put("b", "shout", b"x")
        rig.put("c", "resize", b"3\n3")
        rig.put("d", "resize", b"y", tenant="bob")
        rig.put("e", "resize", b"4")
        rig.put("f", "resize", b"5", options='{"priority":7}')
        assert not rig.heard, "nobody hears anything before it is on disk"
        await rig.all_heard(6)

    asyncio.run(come())
    first, shout, bobs, urgent = rig.batches()
    assert (first.tenant, first.jobtype, first.payloads) == ("acme", "resize", (b"1", b"2", b"3\n3", b"4"))
    assert (shout.jobtype, bobs.tenant, urgent.options) == ("shout", "bob", '{"priority":7}')
    assert rig.heard == {
        "a": first.first, "c": first.first + 2, "e": first.first + 3, "b": shout.first, "d": bobs.first,
        "f": urgent.first,
    }  # fmt: skip
    assert rig.journal.syncs <= 3


def test_it_is_on_disk_before_anybody_hears(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fdatasync

    def watching(fd: int) -> None:
        assert not rig.heard
        sync(fd)
        synced.append(fd)

    monkeypatch.setattr(os, "fdatasync", watching)

    async def come() -> None:
        rig.put("a", "resize", b"1")
        await rig.all_heard(1)

    asyncio.run(come())
    assert synced


def test_a_failed_sync_is_told_to_all_and_for_good(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    async def come() -> None:
        rig.put("a", "resize", b"1")
        rig.put("b", "resize", b"2")
        rig.put("c", "shout", b"3")
        await rig.all_heard(3)
        monkeypatch.undo()
        rig.put("d", "resize", b"4")
        await rig.all_heard(4)

    monkeypatch.setattr(os, "fdatasync", broken)
    asyncio.run(come())
    assert {type(one) for one in rig.heard.values()} == {JournalBroken}


def test_ids_that_are_used_up_are_told_and_others_go_on(rig: Rig) -> None:
    async def come() -> None:
        rig.ids._blocks = [Block(range(64, 128))]
        rig.put("a", "resize", *[b"1"] * 65)
        rig.put("b", "shout", b"x")
        await rig.all_heard(2)

    asyncio.run(come())
    assert isinstance(rig.heard["a"], StoreUnavailable)
    assert rig.heard["b"] == 64


def test_one_who_cannot_be_told_is_nobody_elses_trouble(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_what: int | Exception) -> None:
        raise RuntimeError("gone")

    async def come() -> None:
        rig.gathered.put("acme", "resize", [b"1"], "{}", 1, fails)
        rig.put("b", "resize", b"2")
        await rig.all_heard(1)

    asyncio.run(come())
    (batch,) = rig.batches()
    assert rig.heard == {"b": batch.first + 1}
    assert "was to be told" in caplog.text


def test_a_batch_does_not_become_large(rig: Rig) -> None:
    async def come() -> None:
        for name in "abcdefg":
            rig.put(name, "resize", name.encode() * (SMALL // 3))
        await rig.all_heard(7)

    asyncio.run(come())
    batches = rig.batches()
    assert [len(batch.payloads) for batch in batches] == [3, 3, 1]
    assert [payload[:1] for batch in batches for payload in batch.payloads] == [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
        b"f",
        b"g",
    ]
