"""The audit log. Other tests may write to the same database: these look at entries with a name of their own."""

from __future__ import annotations

import json

from hipq.stores.audit import DETAILS, KEPT, LONGEST, PRUNED, AuditEntry, entry
from hipq.stores.protocols import Store
from tests.contract.jobs import NOW


def logged(store: Store, app: str) -> list[AuditEntry]:
    return [one for one in store.audit_log(0, 10_000) if one.who == app]


class TestAuditLog:
    def test_what_is_recorded_is_read_newest_first(self, store: Store, other: Store, app: str) -> None:
        first = entry(NOW, app, "operate", "192.0.2.1", "cancel", "/jobs/7", {"count": 3})
        second = entry(NOW - 5, app, "admin", "::1", "limit", '"it\'s" ☃ \\', {})
        store.record(first)
        store.record(second)
        newest, oldest = logged(other, app)
        assert newest.id > oldest.id > 0
        assert newest._replace(id=0) == second
        assert oldest._replace(id=0) == first
        assert json.loads(oldest.details) == {"count": 3}

    def test_a_page_begins_before_a_number(self, store: Store, app: str) -> None:
        for n in range(5):
            store.record(entry(NOW, app, "admin", "", "pause", str(n)))
        everything = logged(store, app)
        assert [one.target for one in everything] == ["4", "3", "2", "1", "0"]
        assert store.audit_log(everything[1].id, 1) == [everything[2]]
        assert all(one.id < everything[3].id for one in store.audit_log(everything[3].id, 10))

    def test_what_is_old_goes_in_steps_the_oldest_first(self, store: Store, app: str) -> None:
        for at in (5, *[3] * PRUNED, 9):
            store.record(entry(at, app, "admin", "", "pause", ""))
        store.record(entry(KEPT + 9, app, "admin", "", "pause", ""))
        assert [one.at for one in logged(store, app)] == [KEPT + 9, 9, 5]
        store.record(entry(KEPT + 9, app, "admin", "", "pause", ""))
        assert [one.at for one in logged(store, app)] == [KEPT + 9, KEPT + 9, 9]

    def test_whatever_is_in_an_entry_it_is_stored(self, store: Store, app: str) -> None:
        store.record(entry(NOW, app, "admin", "\x00", "\ud800", "x" * 9_999, {"a": "\x00" + "y" * 9_999}))
        (found,) = logged(store, app)
        assert (found.address, found.action, len(found.target)) == ("\\x00", "\\ud800", LONGEST)
        assert json.loads(found.details) == {"too_long": ["a"]}
        store.record(entry(NOW, app, "admin", "", "", "", {"\x00": "\x00 \\u0000", **{f"n{n}": 1 for n in range(3)}}))
        assert len(json.loads(logged(store, app)[0].details)) == 4
        store.record(entry(NOW, app, "admin", "", "", "", {"n" * DETAILS: 1}))
        assert json.loads(logged(store, app)[0].details) == {"too_long": ["n" * 50]}
