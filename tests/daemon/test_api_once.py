"""Idempotency-Key: the same key gives the same ids, at every daemon, whoever is first and whatever dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hipq.daemon.http.add import Wanted
from hipq.daemon.http.idempotency import Asked, Once
from hipq.daemon.job_factory import PLAIN, Options
from hipq.errors import StoreUnavailable
from hipq.stores.filters import Filter
from hipq.stores.notes import note
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from hipq.stores.values import JOURNALS, Stored
from hipq.testing.clock import HandClock
from tests.daemon.api_serving import Daemon, Tenant, site

FAR = "?dt=2040-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Tenant, Tenant]]:
    """One tenant at two daemons of one PostgreSQL. The second daemon stops at the end: otherwise it would run jobs of
    the tests that come later, which count on the slots of one daemon."""
    here = site("postgres")
    second: Daemon = here.daemon()
    first = here.tenant()
    yield first, Tenant(second, first.name, first.token)
    assert second.stop() == 0


def test_the_same_key_gives_the_same_ids_at_every_daemon(pair: tuple[Tenant, Tenant]) -> None:
    first, second = pair
    ids = first.add("mail", b"a\nb\nc", FAR, idempotency_key="k1")
    assert len(ids) == 3
    assert second.add("mail", b"a\nb\nc", FAR, idempotency_key="k1") == ids
    assert first.add("mail", b"a\nb\nc", FAR, idempotency_key="k1") == ids
    assert [second.job(job_id)["payload"] for job_id in ids] == ["a", "b", "c"]
    assert first.add("mail", b"a\nb\nc", FAR, idempotency_key="k2") != ids
    assert second.add("letter", b"a\nb\nc", FAR, idempotency_key="k1") != ids, "another job type"


def test_the_same_key_with_another_body_is_422(pair: tuple[Tenant, Tenant]) -> None:
    first, second = pair
    first.add("mail", b"a", FAR, idempotency_key="k3")
    for body, query in ((b"b", FAR), (b"a", ""), (b"a", FAR + "&priority=1")):
        got = second("POST", f"/{{}}/job/mail/add{query}", body, idempotency_key="k3")
        assert got.status == 422
        assert "another body" in got.error


def test_many_at_once_with_one_key_add_one_job(pair: tuple[Tenant, Tenant]) -> None:
    with ThreadPoolExecutor(12) as pool:
        calls = [pool.submit(pair[n % 2].add, "race", b"x", FAR, idempotency_key=f"k{n % 6 // 2}") for n in range(36)]
        found = {(one.result()[0]) for one in calls}
    assert len(found) == 3
    there = pair[0]("GET", "/v1/{}/jobs?type=race").json["jobs"]
    assert {job["id"] for job in there} == found


def test_v1_honours_it_too_with_jobs_of_several_types_and_keys(pair: tuple[Tenant, Tenant]) -> None:
    first, second = pair
    body = [
        {"type": "a", "at": "2040-01-01T00:00:00Z"},
        {"type": "b", "key": "own", "at": "2040-01-01T00:00:00Z"},
        {"type": "a", "at": "2040-01-01T00:00:00Z"},
    ]
    got = [one("POST", "/v1/{}/jobs", body, idempotency_key="v1") for one in (first, second, first)]
    assert {one.status for one in got} == {201}
    assert len({tuple(one.json["ids"]) for one in got}) == 1
    assert [first.job(job_id)["type"] for job_id in got[0].json["ids"]] == ["a", "b", "a"]
    single: Any = {"type": "c", "key": "alone", "at": "2040-01-01T00:00:00Z"}
    ids = [one("POST", "/v1/{}/jobs", single, idempotency_key="v2").json["ids"] for one in (first, second)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("key", ["", "x" * 201, "é"])
def test_a_key_that_is_none_is_refused(pair: tuple[Tenant, Tenant], key: str) -> None:
    got = pair[0]("POST", f"/{{}}/job/mail/add{FAR}", b"x", headers={"Idempotency-Key": key.encode("latin-1")})
    assert got.status == 400
    assert "Idempotency-Key" in got.error


# -- without HTTP ----------------------------------------------------------------------------------------------------
class Deaf:
    """A store whose commits succeed and are not heard of."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_deaf = False

    def ingest(self, *arguments: Any) -> bool:
        found = self._store.ingest(*arguments)
        if self.is_deaf:
            raise StoreUnavailable
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Rig:
    def __init__(self) -> None:
        self.clock = HandClock()
        store = open_store("sqlite://", self.clock)
        store.migrate()
        self.queue = store.queue("daemon", "jobs", "daemon_jobs").number
        self.store: Any = Deaf(store)
        self.told: list[int] = []
        self.once = Once(self.store, self.queue, self.added)

    def added(self, news: Any, stored: Sequence[Stored]) -> None:
        assert len(news) == len(stored)
        self.told += [one.id for one in stored]

    def add(self, key: bytes = b"k", body: bytes = b"x", options: Options = PLAIN) -> list[int]:
        asked = Asked("acme", "mail", key, body)
        found = self.once.known(asked)
        return found if found is not None else self.once.add(asked, "acme", [Wanted("mail", options, [body] * 2)])

    @property
    def jobs(self) -> list[int]:
        return [row.id for row in self.store.find(Filter(self.queue, limit=1000))]


def test_a_commit_that_was_not_heard_of_is_found_by_who_asks_again() -> None:
    rig = Rig()
    rig.store.is_deaf = True
    with pytest.raises(StoreUnavailable):
        rig.add()
    rig.store.is_deaf = False
    assert rig.add() == rig.jobs
    assert len(rig.jobs) == 2


def test_it_is_forgotten_after_a_day_and_so_is_what_it_takes() -> None:
    rig = Rig()
    first = rig.add()
    assert rig.told == first
    rig.clock.advance(hours=24, seconds=-1)
    assert rig.add() == first
    rig.clock.advance(seconds=2)
    assert rig.add() != first
    asked = Asked("acme", "mail", b"k", b"x")
    assert note(rig.store, JOURNALS, asked.note).count(asked.key) == 1, "the old one is gone"
