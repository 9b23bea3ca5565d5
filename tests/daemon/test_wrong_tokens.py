"""Who tries tokens that are nobody's is in the audit log, and cannot fill it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon.http.wrong_tokens import ADDRESSES, LEAST, MOST, OTHERS, SOON, WrongTokens
from tests.daemon.api_serving import Site, Tenant, eventually
from tests.daemon.test_operators import session
from tests.databases import STORES, fresh


@pytest.mark.parametrize("store", STORES)
def test_they_are_counted_by_address_in_one_entry(store: str, tmp_path: Path) -> None:
    with fresh(store, tmp_path / "daemon.db") as url:
        site = Site(url, tmp_path)
        daemon = site.daemon("--trusted-proxy", "127.0.0.1")
        acme, boss = site.tenant(daemon), site.admin()

        def guess(number: int) -> int:
            path, post = f"/{acme.name}/job/x/add", number % 2
            return daemon.call(
                "POST" if post else "GET", path if post else "/v1/whoami", b"x" if post else None,
                token=f"hipq_{number:043d}", x_forwarded_for=f"198.51.100.{number % 3}",
            ).status  # fmt: skip

        with ThreadPoolExecutor(20) as threads:
            assert set(threads.map(guess, range(60))) == {401}
        assert session(daemon, "hipq_no-operator")[0] == 403
        assert daemon.call("GET", "/v1/whoami").status == 401, "who has none is nobody who tries"
        assert eventually(lambda: _told(boss))[0]["details"]["times"] > 1
        assert guess(61) == 401
        assert len(_told(boss)) == 1, "what comes behind it has to wait for a minute"
        assert daemon.stop() == 0, "then it says what is left"
        entries = [one for one in site._store.audit_log(0, 100) if one.action == "wrong tokens"]
        assert {(one.who, one.via, one.target) for one in entries} == {("nobody", "api", "")}
        counted = [json.loads(one.details) for one in entries]
        assert (len(counted), sum(one["times"] for one in counted)) == (2, 62)
        ways = Counter[str]()
        for one in counted:
            ways.update(one["from"])
        assert ways == {"198.51.100.0": 20, "198.51.100.1": 21, "198.51.100.2": 20, "127.0.0.1": 1}
        site.close()


def _told(boss: Tenant) -> list[Any]:
    found = boss("GET", "/v1/audit?limit=100").json["entries"]
    return [one for one in found if one["action"] == "wrong tokens"]


class Written:
    """Wrong tokens with a clock to turn by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.entries, self.waits = 1e6, list[Mapping[str, Any]](), list[float]()
        monkeypatch.setattr("threading.Timer", self._timer)
        self.tokens = WrongTokens(self.entries.append, lambda: self.now)

    def _timer(self, seconds: float, tell: Any) -> Any:
        self.waits.append(seconds)
        self._tell = tell
        return type("Timer", (), {"start": lambda _: None, "cancel": lambda _: None})()

    def pass_by(self) -> None:
        self.now += self.waits[-1]
        self._tell()


def test_the_longer_they_come_the_fewer_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Written(monkeypatch)
    for _ in range(10):
        for _ in range(1000):
            rig.tokens.add("198.51.100.1")
        rig.pass_by()
    assert rig.waits == [SOON, *(LEAST * 2**number for number in range(1, 6)), *[MOST] * 4]
    assert [one["times"] for one in rig.entries] == [1000] * 10
    rig.now += 2 * MOST
    rig.tokens.add("198.51.100.1")
    assert rig.waits[-1] == SOON, "after a quiet time the next one is told at once"


def test_an_entry_names_so_many_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Written(monkeypatch)
    for number in range(100):
        rig.tokens.add(f"198.51.100.{number}")
    rig.tokens.add("198.51.100.1")
    rig.tokens.close()
    rig.tokens.add("198.51.100.1")
    ((entry),) = rig.entries
    assert entry["times"] == 101
    assert len(entry["from"]) == ADDRESSES + 1
    assert entry["from"][OTHERS] == 100 - ADDRESSES
    assert entry["from"]["198.51.100.1"] == 2
