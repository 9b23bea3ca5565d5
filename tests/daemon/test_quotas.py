"""Quotas: what a tenant may have waiting, in jobs and in bytes, and how many jobs a second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from hipq.daemon.http.metrics import Seldom
from hipq.daemon.tenancy.backlog import Backlog
from hipq.daemon.tenancy.quotas import Chained, Gate, TooMuchAtOnce
from hipq.daemon.tenancy.tenants import Quotas, Tenants
from hipq.errors import OverQuota, StoreUnavailable
from hipq.stores.open import open_store
from hipq.stores.protocols import Store


@pytest.fixture
def store() -> Iterator[Store]:
    found = open_store("sqlite://")
    found.migrate()
    yield found
    found.close()


class Rig:
    def __init__(self, store: Store, **quotas: int) -> None:
        self.now = 100.0
        self.waiting: dict[str, tuple[int, int]] = {}
        self.kept: dict[str, tuple[int, int]] = {}
        self.counts = 0
        self.takes = 0.0
        self.away = False
        tenants = Tenants(store)
        tenants.add("acme", quotas=Quotas(**quotas))
        tenants.add("free")
        tenants.look()
        self.is_taken = True
        self.backlog = Backlog(self.usage, lambda: self.now, lambda: self.is_taken)
        self.ended = Backlog(lambda: dict(self.kept), lambda: self.now)
        self.gate = Gate(tenants, self.backlog, self.ended, lambda: self.now)
        self.chained = Chained(tenants, self.backlog, self.ended)

    def usage(self) -> dict[str, tuple[int, int]]:
        self.counts += 1
        self.now += self.takes
        if self.away:
            raise StoreUnavailable
        return dict(self.waiting)

    async def enters(self, jobs: int = 1, size: int = 10, tenant: str = "acme") -> bool:
        try:
            async with self.gate.entered(tenant, jobs, size):
                pass
        except OverQuota:
            return False
        await asyncio.sleep(0)
        return True

    async def count(self) -> None:
        """What waits is counted again, beside the event loop as in a daemon."""
        self.now += 100
        before = self.counts
        async with asyncio.timeout(60):
            while self.counts == before or self.backlog.is_due:
                await self.enters(5)  # too many, so nothing but a count comes of it
                await asyncio.sleep(0.001)


def test_a_tenant_without_quotas_is_asked_nothing(store: Store) -> None:
    rig = Rig(store, waiting=1)
    assert asyncio.run(rig.enters(1_000_000, 1 << 40, "free"))
    for tenant in ("free", "unknown"):
        assert rig.gate.enter_now(tenant, 1_000_000, 1 << 40)
    assert rig.counts == 0


def test_who_cannot_wait_enters_once_it_is_known_how_much_waits(store: Store) -> None:
    rig = Rig(store, waiting=10)
    rig.waiting = {"acme": (7, 70)}

    async def ask() -> None:
        assert not rig.gate.enter_now("acme", 1, 10), "nothing was counted yet"
        assert await rig.enters(1)
        assert rig.gate.enter_now("acme", 2, 20)
        with pytest.raises(OverQuota):
            rig.gate.enter_now("acme", 1, 10)
        with pytest.raises(TooMuchAtOnce):
            rig.gate.enter_now("acme", 11, 10)
        assert not await rig.enters(1), "what was counted now, counts for all"
        rig.waiting = {}
        rig.now += 1.1
        with pytest.raises(OverQuota):
            rig.gate.enter_now("acme", 1, 10)
        while rig.counts < 2:  # but it has it counted again
            await asyncio.sleep(0)

    asyncio.run(ask())


def test_a_rate_holds_for_who_cannot_wait(store: Store) -> None:
    rig = Rig(store, rate=2)
    assert rig.gate.enter_now("acme", 2, 10)
    with pytest.raises(OverQuota):
        rig.gate.enter_now("acme", 1, 10)
    rig.now += 0.5
    assert rig.gate.enter_now("acme", 1, 10)
    assert rig.counts == 0


def test_waiting_jobs_count_those_of_the_store_and_those_added_here_since(store: Store) -> None:
    rig = Rig(store, waiting=10)
    rig.waiting = {"acme": (7, 70), "bob": (99, 99)}

    async def ask() -> None:
        assert await rig.enters(2)
        await rig.gate.enter("acme", 1, 10)
        assert not await rig.enters(1)
        rig.gate.leave("acme", 1, 10)  # this job was not added after all
        assert await rig.enters(1)
        assert not await rig.enters(1)

    asyncio.run(ask())
    assert rig.counts == 1


def test_bytes_are_counted_too(store: Store) -> None:
    rig = Rig(store, bytes=100)
    rig.waiting = {"acme": (1, 60)}

    async def ask() -> None:
        assert await rig.enters(1, 40)
        assert not await rig.enters(1, 1)

    asyncio.run(ask())


def test_more_than_the_quota_in_one_request_never_fits(store: Store) -> None:
    rig = Rig(store, waiting=10, bytes=100)
    with pytest.raises(TooMuchAtOnce, match="this request has 11 jobs"):
        asyncio.run(rig.enters(11, 1))
    with pytest.raises(TooMuchAtOnce, match="this request has 101 bytes"):
        asyncio.run(rig.enters(1, 101))


def test_what_has_run_makes_room_when_it_is_counted_again(store: Store) -> None:
    rig = Rig(store, waiting=10)
    rig.waiting = {"acme": (10, 0)}

    async def ask() -> None:
        assert not await rig.enters()
        rig.waiting = {}
        assert not await rig.enters(), "not counted again yet"
        rig.now += 1.1
        assert await rig.enters(9), "who would be refused by an old count waits for the next"
        assert rig.counts == 2

    asyncio.run(ask())


def test_counting_takes_at_most_a_twentieth_of_the_time(store: Store) -> None:
    rig = Rig(store, waiting=1_000_000)
    rig.takes = 2.0

    async def ask() -> None:
        for _ in range(400):
            await rig.enters()
            await asyncio.sleep(0.0005)
            rig.now += 0.1

    asyncio.run(ask())
    assert rig.counts <= 2


def test_what_is_added_while_it_is_counted_counts(store: Store) -> None:
    rig = Rig(store, waiting=5)

    async def ask() -> None:
        assert await rig.enters(2)
        rig.now += 1.1
        rig.waiting = {"acme": (2, 20)}  # those two are in the store by now
        assert await rig.enters(1)  # a count begins, and this one is added meanwhile
        await asyncio.sleep(0.05)
        assert await rig.enters(2)
        assert not await rig.enters(1)

    asyncio.run(ask())


def test_a_count_made_while_a_job_is_on_its_way_in_does_not_forget_it(store: Store) -> None:
    rig = Rig(store, waiting=5)

    async def ask() -> None:
        assert await rig.enters(4)
        rig.waiting = {"acme": (4, 40)}
        async with rig.gate.entered("acme", 1, 10):
            await rig.count()  # in neither the journal nor the store yet: no count has the fifth
            assert not await rig.enters(1), "a sixth"
        assert not await rig.enters(1), "the fifth is kept now"
        rig.waiting = {"acme": (4, 40)}
        await rig.count()
        assert await rig.enters(1), "kept, counted and run meanwhile"

    asyncio.run(ask())


def test_jobs_whose_adding_was_cut_off_count_until_the_next_count(store: Store) -> None:
    rig = Rig(store, waiting=5)

    async def ask() -> None:
        assert await rig.enters(4)
        for cut_off in (StoreUnavailable, asyncio.CancelledError):
            with pytest.raises(cut_off):
                async with rig.gate.entered("acme", 1, 10):
                    raise cut_off
            assert not await rig.enters(1), "it may be stored all the same"
            rig.waiting = {"acme": (4, 40)}  # and is not
            await rig.count()
            async with rig.gate.entered("acme", 1, 10):
                pass
            await rig.count()

    asyncio.run(ask())


def test_a_rate_lets_a_seconds_worth_in_at_once_and_then_its_average(store: Store) -> None:
    rig = Rig(store, rate=10)

    async def ask() -> None:
        assert [await rig.enters() for _ in range(12)].count(True) == 10
        rig.now += 0.5
        assert [await rig.enters() for _ in range(8)].count(True) == 5
        rig.now += 100
        assert [await rig.enters() for _ in range(20)].count(True) == 10

    asyncio.run(ask())


def test_a_batch_larger_than_a_second_is_let_in_and_paid_off(store: Store) -> None:
    rig = Rig(store, rate=10)

    async def ask() -> None:
        assert await rig.enters(100)
        with pytest.raises(OverQuota) as told:
            await rig.gate.enter("acme", 1, 1)
        assert told.value.retry_after == 10
        rig.now += 9.5
        assert await rig.enters()

    asyncio.run(ask())


def test_while_the_store_is_away_what_was_counted_last_holds(store: Store) -> None:
    rig = Rig(store, waiting=3)
    rig.waiting = {"acme": (1, 1)}

    async def ask() -> None:
        assert await rig.enters()
        rig.away = True
        rig.now += 100
        assert await rig.enters()
        await asyncio.sleep(0.05)
        assert not await rig.enters()

    asyncio.run(ask())


def test_what_is_in_the_journal_only_counts_however_often_the_store_is_asked(store: Store) -> None:
    rig = Rig(store, waiting=100)

    async def ask() -> None:
        assert await rig.enters(40)
        rig.is_taken = False  # nothing more gets from the journal into the store
        let_in = 40
        for _ in range(20):
            rig.now += 1.1
            let_in += 20 * await rig.enters(20)
        assert let_in == 100
        rig.is_taken, rig.waiting = True, {"acme": (90, 900)}
        for _ in range(1000):
            rig.now += 1.1
            if await rig.enters(5):
                break
            await asyncio.sleep(0.01)  # it is counted beside
        else:
            pytest.fail("the store has it now, and it is not counted anew")
        assert not await rig.enters(10)

    asyncio.run(ask())


# -- jobs that handlers ask for ---------------------------------------------------------------------------------------
def test_what_handlers_ask_for_and_what_comes_over_http_is_one_count(store: Store) -> None:
    rig = Rig(store, waiting=10, bytes=1000)
    rig.waiting = {"acme": (4, 40)}
    rig.chained.enter("acme", 3, 30, (0, 0))

    async def ask() -> None:
        assert await rig.enters(3)
        assert not await rig.enters(1)

    asyncio.run(ask())
    with pytest.raises(OverQuota, match="10 waiting jobs is used up"):
        rig.chained.enter("acme", 1, 1, (0, 0))
    rig.waiting = {"acme": (0, 0)}
    rig.now += 1.1
    rig.chained.enter("acme", 1, 1, (0, 0))


def test_a_job_that_asks_for_no_more_than_goes_with_it_never_waits_for_room(store: Store) -> None:
    rig = Rig(store, waiting=5, bytes=100)
    rig.waiting = {"acme": (9, 300)}  # more than it may: the quota was lowered
    rig.chained.enter("acme", 1, 50, (1, 50))
    with pytest.raises(OverQuota, match="5 waiting jobs"):
        rig.chained.enter("acme", 2, 50, (1, 50))
    with pytest.raises(OverQuota, match="100 bytes"):
        rig.chained.enter("acme", 1, 51, (1, 50))


def test_handlers_that_ask_for_more_than_the_quota_are_told_so(store: Store) -> None:
    rig = Rig(store, waiting=5, bytes=100)
    with pytest.raises(TooMuchAtOnce, match="it asked for 6 jobs, and the tenant's quota is 5"):
        rig.chained.enter("acme", 6, 6, (1, 1))
    rig.chained.enter("free", 1_000_000, 1 << 40, (0, 0))
    rig.chained.enter("unknown", 1_000_000, 1 << 40, (0, 0))


def test_what_is_shown_to_everybody_is_counted_seldom() -> None:
    """A count of a million jobs takes a second, and whoever asks for metrics asks again and again."""
    now, counts = 100.0, 0

    async def count() -> dict[str, tuple[int, int]]:
        nonlocal now, counts
        now, counts = now + 1.0, counts + 1
        return {"acme": (counts, 0)}

    async def main() -> None:
        nonlocal now
        seldom = Seldom(lambda: now)
        assert await asyncio.gather(*(seldom.of(count) for _ in range(10))) == [{"acme": (1, 0)}] * 10
        now += 19.9
        assert await seldom.of(count) == {"acme": (1, 0)}
        now += 0.2
        assert await seldom.of(count) == {"acme": (2, 0)}

    asyncio.run(main())


def test_a_count_that_fails_is_made_again() -> None:
    async def away() -> dict[str, tuple[int, int]]:
        raise StoreUnavailable

    async def back() -> dict[str, tuple[int, int]]:
        return {"acme": (1, 1)}

    async def main() -> None:
        seldom = Seldom()
        with pytest.raises(StoreUnavailable):
            await seldom.of(away)
        assert await seldom.of(back) == {"acme": (1, 1)}

    asyncio.run(main())


def test_a_quota_that_comes_while_a_request_is_under_way_is_as_tight_as_later_ones() -> None:
    """That request did not enter: what it leaves is nobody's, and must make no room for others."""
    there = {"acme": (0, 0)}
    now = [0.0]
    backlog = Backlog(lambda: dict(there), lambda: now[0])
    backlog.count()
    assert backlog.enter("acme", 1, 1) == -1
    backlog.kept("acme", 5, 5)  # of the request from before
    backlog.kept("acme", 1, 1)
    there["acme"], now[0] = (6, 6), 100.0
    backlog.count()
    assert backlog.enter("acme", 1, 1, (6, 0)) == 0
