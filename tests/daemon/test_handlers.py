"""Handlers: set, got and deleted as the seed says, with their versions; asked for a thousand times, read once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hipq.daemon.handlers import handlers as module
from hipq.daemon.handlers.handlers import FRESH, KEPT, OLD, Handlers
from hipq.errors import Conflict, Invalid, NotFound, StoreUnavailable
from hipq.sandbox.policy import Policy
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from tests.engine.conftest import url
from tests.engine.working import until

__all__ = ["url"]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    found = open_store(url)
    found.migrate()
    yield found
    found.close()


@pytest.fixture
def handlers(store: Store) -> Handlers:
    return Handlers(store)


class Watched:
    """A store that counts what it is asked, and can be away."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0
        self.away = False

    def notes(self, kind: str, start: str = "", *, exact: bool = False) -> dict[str, str]:
        self.asked += exact
        if self.away and exact:
            raise StoreUnavailable
        return self._store.notes(kind, start, exact=exact)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_the_sizes_of_all_handlers(handlers: Handlers, store: Store) -> None:
    handlers.set("acme", "mail", lang="python", body="x" * 1000)
    handlers.set("acme", "mail", lang="python", body="y")
    handlers.set("acme", "web", lang="shell", body="true")
    handlers.set("zeta", "old", lang="shell", body="true")
    kept = store.notes("handler")
    handlers.delete("acme", "web")
    handlers.delete("zeta", "old", purge=True)
    assert handlers.sizes() == {
        "acme": {name: len(kept[f"acme-{name}"]) for name in ("mail", "web")}, "zeta": {},
    }  # fmt: skip


def test_set_handler_and_get_handler(handlers: Handlers) -> None:
    made = handlers.set("acme", "resize.v2", lang="node", body="return 1", eid="pictures", beforeEach="let x")
    assert handlers.get("acme", "resize.v2") == made
    assert (made.tenant, made.type, made.lang, made.body, made.eid) == (
        "acme", "resize.v2", "node", "return 1", "pictures",
    )  # fmt: skip
    assert (made.before, made.beforeEach, made.afterEach) == ("", "let x", "")
    assert made.dt > 0
    assert handlers.get("acme", "resize") is None, "a version in the name is a task of its own"
    assert handlers.get("bob", "resize.v2") is None


def test_delete_handler(handlers: Handlers) -> None:
    handlers.set("acme", "resize", lang="python", body="return 1")
    handlers.delete("acme", "resize")
    assert handlers.get("acme", "resize") is None
    assert handlers.list("acme") == []
    with pytest.raises(NotFound):
        handlers.delete("acme", "resize")
    handlers.delete("acme", "resize", purge=True)
    assert handlers.versions("acme", "resize") == []


def test_delete_keeps_versions_and_an_older_one_can_be_brought_back(handlers: Handlers) -> None:
    first = handlers.set("acme", "resize", lang="python", body="return 1")
    second = handlers.set("acme", "resize", lang="python", body="return 2")
    handlers.delete("acme", "resize")
    assert [one.id for one in handlers.versions("acme", "resize")] == [second.id, first.id]
    back = handlers.restore("acme", "resize", first.id)
    assert (back.id, back.body, back.deleted) == (first.id, "return 1", 0)
    assert back.dt > second.dt
    found = handlers.get("acme", "resize")
    assert found is not None
    assert found.id == first.id
    assert [one.id for one in handlers.versions("acme", "resize")] == [first.id, second.id]
    with pytest.raises(NotFound):
        handlers.restore("acme", "resize", "no such version")


def test_the_newest_version_runs_and_old_ones_are_cleaned(handlers: Handlers) -> None:
    made = [handlers.set("acme", "resize", lang="python", body=f"return {number}") for number in range(KEPT + 3)]
    assert handlers.get("acme", "resize") == made[-1]
    assert handlers.versions("acme", "resize") == made[::-1][:KEPT]
    assert len({one.id for one in made}) == len(made)
    assert sorted(one.dt for one in made) == [one.dt for one in made]


def test_a_tenants_handlers_are_its_own(handlers: Handlers) -> None:
    handlers.set("a", "b-c", lang="python", body="return 1")
    handlers.set("a", "x", lang="python", body="return 2")
    handlers.set("ab", "c", lang="python", body="return 3")
    assert [one.type for one in handlers.list("a")] == ["b-c", "x"]
    assert [one.type for one in handlers.list("ab")] == ["c"]
    with pytest.raises(Invalid):
        handlers.set("a-b", "c", lang="python", body="return 4")


@pytest.mark.parametrize(
    ("job_type", "parts", "why"),
    [
        ("a/b", {"lang": "python", "body": "x"}, "job type"),
        ("", {"lang": "python", "body": "x"}, "job type"),
        ("x", {"body": "x"}, "needs a language"),
        ("x", {"lang": "cobol", "body": "x"}, "there is no language"),
        ("x", {"lang": "python", "body": " "}, "needs a body"),
        ("x", {"lang": "python", "body": "a\x00b"}, "NUL"),
        ("x", {"lang": "python", "body": "\ud800"}, "half a character"),
        ("x", {"lang": "python", "body": "x" * 1_000_001}, "1,000,000 bytes"),
        ("x", {"lang": "http", "body": "file:///etc/passwd"}, "http://"),
        ("x", {"lang": "python", "body": "x", "code": "y"}, "no 'code'"),
        ("x", {"lang": "python", "body": 5}, "must be text"),
        ("x", {"lang": "python", "body": "x", "eid": "../x"}, "engine id"),
    ],
)
def test_what_can_never_run_is_refused(job_type: str, parts: dict[str, Any], why: str) -> None:
    handlers = Handlers(open_store("sqlite://"))
    with pytest.raises(Invalid, match=why):
        handlers.set("acme", job_type, **parts)
    assert handlers.list("acme") == []


def test_a_tenant_has_so_many_handlers_and_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    handlers = Handlers(store)
    for n in range(3):
        handlers.set("acme", f"t{n}", lang="python", body="return 1")
    with pytest.raises(Conflict, match="the tenant has 3 handlers already"):
        handlers.set("acme", "t3", lang="python", body="return 1")
    assert handlers.get("acme", "t3") is None
    handlers.set("acme", "t1", lang="python", body="a new version of one that is there")
    handlers.set("other", "t3", lang="python", body="another tenant has its own")
    handlers.delete("acme", "t0", purge=True)
    handlers.set("acme", "t3", lang="python", body="there is room again")


def test_a_tenants_handlers_have_so_many_bytes_and_no_more_all_versions_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    handlers = Handlers(store)
    handlers.set("acme", "a", lang="python", body="x" * 4_000)
    handlers.set("acme", "a", lang="python", body="y" * 4_000)
    with pytest.raises(Conflict, match="may have 10,000 bytes, and would have 12,"):
        handlers.set("acme", "a", lang="python", body="z" * 4_000)
    for _ in range(10):
        handlers.set("acme", "a", lang="python", body="small")  # and the old versions go
    handlers.set("acme", "b", lang="python", body="x" * 8_000)


def test_handlers_that_an_older_program_has_set_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = Handlers(store)
    handlers.set("acme", "a", lang="python", body="return 1")
    store.change_note(module.SIZES, "acme", lambda _: "")
    monkeypatch.setattr(module, "MOST", 1)
    with pytest.raises(Conflict):
        handlers.set("acme", "b", lang="python", body="return 1")
    handlers.set("acme", "a", lang="python", body="return 2")


def test_asking_again_and_again_reads_the_store_once(store: Store) -> None:
    now = [0.0]
    watched: Any = Watched(store)
    handlers = Handlers(watched, lambda: now[0])
    made = handlers.set("acme", "resize", lang="python", body="return 1")
    watched.asked = 0
    for _ in range(1000):
        assert handlers.get("acme", "resize") == made
        assert handlers.get("acme", "none") is None
    assert watched.asked <= 4
    now[0] += FRESH
    before = watched.asked
    for _ in range(1000):
        assert handlers.get("acme", "resize") == made
    assert watched.asked == before + 1, "one look at the stamp"


def test_a_change_elsewhere_is_seen_within_a_second(store: Store) -> None:
    now = [0.0]
    handlers, other = Handlers(store, lambda: now[0]), Handlers(store)
    assert handlers.get("acme", "resize") is None
    first = other.set("acme", "resize", lang="python", body="return 1")
    now[0] += FRESH
    assert handlers.get("acme", "resize") == first
    other.set("acme", "resize", lang="python", body="return 2")
    assert handlers.get("acme", "resize") == first, "not looked yet"
    now[0] += FRESH
    found = handlers.get("acme", "resize")
    assert found
    assert found.body == "return 2"
    other.delete("acme", "resize")
    now[0] += FRESH
    assert handlers.get("acme", "resize") is None


def test_a_change_here_is_seen_at_once(store: Store) -> None:
    handlers = Handlers(store, lambda: 5.0)
    assert handlers.get("acme", "resize") is None
    for number in range(3):
        handlers.set("acme", "resize", lang="python", body=f"return {number}")
        found = handlers.get("acme", "resize")
        assert found
        assert found.body == f"return {number}"


def test_a_change_whose_maker_died_before_saying_so_is_seen_after_a_while(store: Store) -> None:
    now = [0.0]
    handlers, other = Handlers(store, lambda: now[0]), Handlers(store)
    other.set("acme", "resize", lang="python", body="return 1")
    assert handlers.get("acme", "resize")
    store.change_note("handler", "acme-resize", lambda _: "")
    now[0] += FRESH
    assert handlers.get("acme", "resize")
    now[0] += OLD
    assert handlers.get("acme", "resize") is None


def test_while_the_store_is_away_what_is_known_runs(store: Store) -> None:
    now = [0.0]
    watched: Any = Watched(store)
    handlers = Handlers(watched, lambda: now[0])
    handlers.set("acme", "resize", lang="python", body="return 1")
    assert handlers.get("acme", "resize")
    watched.away = True
    for _ in range(5):
        now[0] += OLD
        assert handlers.get("acme", "resize")
    with pytest.raises(StoreUnavailable):
        handlers.get("acme", "another")


def test_many_threads_ask_while_versions_come(store: Store) -> None:
    handlers = Handlers(store)
    handlers.set("acme", "resize", lang="python", body="return 0")
    seen: list[list[int]] = [[] for _ in range(3)]
    stop = threading.Event()

    def ask(mine: list[int]) -> None:
        while not stop.wait(0.001):
            found = handlers.get("acme", "resize")
            assert found
            mine.append(int(found.body.removeprefix("return ")))

    threads = [threading.Thread(target=ask, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for number in range(1, 20):
        handlers.set("acme", "resize", lang="python", body=f"return {number}")
    found = handlers.get("acme", "resize")
    until(lambda: all(seen))  # on a busy machine a thread may not have begun yet
    stop.set()
    for thread in threads:
        thread.join()
    assert found
    assert found.body == "return 19"
    last = Handlers(store).get("acme", "resize")
    assert last == found


def test_two_who_put_at_once_leave_the_limit_of_the_version_that_runs(store: Store) -> None:
    """The second puts its version between the first one's version and the first one's limit."""

    class Between(Watched):
        def change_note(self, kind: str, name: str, change: Any) -> str:
            if kind == module.LIMITS and not self.asked_to_change:
                self.asked_to_change = True
                Handlers(store).set("acme", "mail", lang="shell", body="true", policy=Policy(concurrency=7))
            return store.change_note(kind, name, change)

        asked_to_change = False

    first = Handlers(Between(store))
    first.set("acme", "mail", lang="shell", body="true", policy=Policy(concurrency=2))
    assert first.limits() == {"acme/mail": 7}
    assert first.versions("acme", "mail")[0].policy.concurrency == 7
    first.delete("acme", "mail", purge=True)
    assert first.limits() == {}
