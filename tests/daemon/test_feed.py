"""Events for those who watch: each tenant its own, and one that is too slow is let go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from hipq.daemon.http.feed import PLACES, Feed
from hipq.daemon.job_factory import PLAIN, job
from hipq.events import Events
from hipq.job.model import Row, blank, numbered


def some_job(tenant: str = "acme", number: int = 1) -> Row:
    return blank(job(1, tenant, "work", b"x", PLAIN, 1_000_000), numbered(number, 1))


def watched(emit: Callable[[Events], None], tenant: str = "acme", count: int = 1) -> list[dict[str, Any]]:
    """What somebody who watches is told while, in another thread, this happens."""
    events = Events()
    feed = Feed(events)

    async def watch() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        stream = feed.subscribe(tenant)
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        thread = threading.Thread(target=emit, args=(events,))
        thread.start()
        found.append(await asyncio.wait_for(first, 60))
        while len(found) < count:
            found.append(await asyncio.wait_for(anext(stream), 60))
        thread.join()
        await stream.aclose()
        return found

    found = asyncio.run(watch())
    assert feed._readers == {}, "nobody is remembered who has gone"
    return found


def test_who_watches_is_told_what_happens_to_its_jobs() -> None:
    def emit(events: Events) -> None:
        events.emit("added", 1_000_000, "jobs", some_job())
        events.emit("staged", 1_000_000, "jobs")
        events.emit("claimed", 2_000_000, "jobs", some_job())

    added, claimed = watched(emit, count=2)
    assert (added["event"], added["id"], added["type"]) == ("added", str(some_job().id), "work")
    assert added["key"] == added["id"]
    assert (added["state"], added["code"], added["exitcode"]) == ("initial", None, None)
    assert claimed["event"] == "claimed"
    assert claimed["at"] == "1970-01-01T00:00:02+00:00"


def test_nobody_is_told_of_another_tenants_jobs() -> None:
    def emit(events: Events) -> None:
        for n in range(20):
            events.emit("added", 1, "jobs", some_job("other" if n < 19 else "acme", n + 1))

    assert [event["id"] for event in watched(emit)] == [str(some_job(number=20).id)]


def test_who_is_too_slow_is_told_so_and_let_go() -> None:
    events = Events()
    feed = Feed(events)

    async def watch() -> list[dict[str, Any]]:
        stream = feed.subscribe("acme")
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        for n in range(PLACES + 500):  # nobody reads meanwhile
            events.emit("added", 1, "jobs", some_job(number=n + 1))
        return [await first, *[event async for event in stream]]

    found = asyncio.run(watch())
    assert [event["event"] for event in found[:-1]] == ["added"] * (len(found) - 1)
    assert PLACES <= len(found) - 1 <= PLACES + 1
    assert found[-1]["event"] == "too slow"


def test_until_somebody_watches_nothing_is_subscribed_to() -> None:
    events = Events()
    Feed(events)
    assert not events.wanted("added")


def test_a_loop_that_is_gone_is_in_nobodys_way() -> None:
    events = Events()
    feed = Feed(events)
    loop = asyncio.new_event_loop()
    stream = feed.subscribe("acme")

    async def begin() -> None:
        asyncio.ensure_future(anext(stream))  # noqa: RUF006 - it is left behind
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.close()
    events.emit("added", 1, "jobs", some_job())  # and nothing is raised
    assert events.wanted("added")
