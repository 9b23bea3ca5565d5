"""Calls that wait for the store: no tenant waits for what another has waiting."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from hipq.daemon.tenancy.fair_semaphore import LEAST, OWN, SHARE, FairSemaphore

HANG = 60.0


class Calls:
    """Calls that end when they are let."""

    def __init__(self, turns: FairSemaphore) -> None:
        self._turns = turns
        self.begun: list[str] = []
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._may_end = threading.Semaphore(0)
        self._changed = threading.Condition()

    def make(self, tenant: str) -> asyncio.Task[str]:
        return asyncio.ensure_future(self._turns.call(tenant, lambda: self._call(tenant)))

    def _call(self, tenant: str) -> str:
        with self._changed:
            self.begun.append(tenant)
            self._now[tenant] += 1
            self.most[tenant] = max(self.most[tenant], self._now[tenant])
            self._changed.notify_all()
        assert self._may_end.acquire(timeout=HANG)
        with self._changed:
            self._now[tenant] -= 1
        return tenant

    async def begin(self, count: int) -> None:
        """Wait until so many have begun."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: len(self.begun) >= count, HANG)

        assert await asyncio.to_thread(wait), self.begun

    def end(self, count: int = 1) -> None:
        self._may_end.release(count)


@pytest.mark.parametrize("at_once", [1, 10])
def test_who_comes_waits_for_no_call_that_another_has_waiting(at_once: int) -> None:
    async def main() -> None:
        calls = Calls(FairSemaphore(at_once))
        many = [calls.make("hog") for _ in range(64)]
        share = max(at_once // SHARE, 1)
        await calls.begin(share)
        one = calls.make("small")
        await calls.begin(share + 1)
        assert calls.begun == ["hog"] * share + ["small"], "while not one of the others has ended"
        calls.end(65)
        assert await one == "small"
        assert await asyncio.gather(*many) == ["hog"] * 64
        assert calls.most["hog"] == share

    asyncio.run(main())


def test_when_all_threads_are_taken_tenants_take_turns() -> None:
    async def main() -> None:
        calls = Calls(FairSemaphore(1))
        hogs = [calls.make(f"hog{n}") for _ in range(9) for n in range(LEAST)]
        await calls.begin(LEAST)
        await asyncio.sleep(0)
        small = calls.make("small")
        await asyncio.sleep(0)
        for ended in range(1, 2 * LEAST + 1):
            calls.end()
            await calls.begin(LEAST + ended)
        assert calls.begun.index("small") <= 2 * LEAST, "it waits for one round of those who came before"
        assert set(calls.most.values()) == {1}
        calls.end(100)
        await asyncio.gather(*hogs, small)

    asyncio.run(main())


def test_those_who_leave_give_up_their_turn() -> None:
    async def main() -> None:
        turns = FairSemaphore(1)
        calls = Calls(turns)
        first = calls.make("a")
        await calls.begin(1)
        waiting = [calls.make("a") for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[1].cancel()
        await asyncio.gather(*waiting[:2], return_exceptions=True)
        calls.end()
        await first
        await calls.begin(2)
        calls.end()
        await waiting[2]
        assert calls.begun == ["a", "a"]
        assert not turns._under_way
        assert not turns._waiting

    asyncio.run(main())


def test_one_whose_turn_has_come_as_it_leaves_hands_it_on() -> None:
    async def main() -> None:
        turns = FairSemaphore(1)
        entered = turns.of("a")
        await entered.__aenter__()
        left, stays = (asyncio.ensure_future(turns._enter("a")) for _ in range(2))
        await asyncio.sleep(0)
        await entered.__aexit__(None, None, None)  # `left` has its turn now, and has not noticed
        left.cancel()
        await asyncio.wait_for(stays, HANG)
        assert left.cancelled()
        assert turns._under_way == {"a": 1}
        turns._leave("a")
        assert not turns._under_way

    asyncio.run(main())


def test_connections_are_left_to_the_daemon_itself() -> None:
    async def main() -> None:
        calls = Calls(FairSemaphore(10))
        all_of_them = [calls.make(f"t{n}") for n in range(20)]
        await calls.begin(10 - OWN)
        await asyncio.sleep(0.05)
        assert len(calls.begun) == 10 - OWN
        calls.end(20)
        await asyncio.gather(*all_of_them)

    asyncio.run(main())


def test_who_gives_up_at_the_moment_of_its_turn_leaves_no_trace() -> None:
    async def main() -> None:
        turns = FairSemaphore(1)
        first, second = turns.of("x"), turns.of("x")
        await first.__aenter__()
        waiting = asyncio.ensure_future(second.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()  # it hears of that a moment later
        await first.__aexit__(None, None, None)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(HANG):
            async with turns.of("x"):
                pass
        assert (turns._under_way, turns._waiting) == ({}, {})

    asyncio.run(main())
