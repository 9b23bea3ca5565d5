"""While jobs wait to be taken from the journal into the store: an id that is out is never said not to exist."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hipq.daemon.daemon import Daemon
from hipq.daemon.http import not_stored_yet as module
from hipq.daemon.http.api import Api, app
from hipq.job.model import sequence_of
from hipq.journal import Batch
from tests.daemon.working import add, made

VERBS = [("GET", ""), ("GET", "/result"), ("GET", "/why"), ("POST", "/cancel"), ("POST", "/retry")]


class Got(NamedTuple):
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def call(api: Api, method: str, path: str, query: str = "", **headers: str) -> Got:
    """One request, without a network."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": given,
        "root_path": "",
    }
    asyncio.run(api(scope, receive, send))
    head, *parts = sent
    return Got(head["status"], tuple(head["headers"]), b"".join(part["body"] for part in parts))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """Its store is there, and nothing is taken in before a test says so."""
    monkeypatch.setattr(module, "ON_ITS_WAY", 0.05)
    found = made(tmp_path)
    yield found
    found.stop()
    found.close()


@pytest.mark.parametrize(("method", "verb"), VERBS)
def test_an_acknowledged_id_is_not_stored_yet_until_the_store_has_it(served: Daemon, method: str, verb: str) -> None:
    api = app(served, tokens=False)
    (job_id,) = add(served, "mail", b"x", at=served.store.now() + 3_600_000_000)
    got = call(api, method, f"/v1/acme/jobs/{job_id}{verb}")
    assert (got.status, dict(got.headers)[b"retry-after"]) == (202 if method == "GET" else 503, b"1")
    assert b"not stored yet" in got.body
    served._ingest.step()
    assert call(api, method, f"/v1/acme/jobs/{job_id}{verb}").status in (200, 202)


@pytest.mark.parametrize(("method", "verb"), VERBS)
def test_nobody_can_tell_what_is_anothers_from_what_is_not_there(served: Daemon, method: str, verb: str) -> None:
    api = app(served, tokens=False)
    (stored,) = add(served, "mail", b"x", tenant="other")
    served._ingest.step()
    (waiting,) = add(served, "mail", b"x", tenant="other")
    never = waiting + (3 << 16)
    said = {call(api, method, f"/v1/acme/jobs/{job_id}{verb}") for job_id in map(str, (stored, waiting, never))}
    assert [got.status for got in said] == [202 if method == "GET" else 503], "the same, byte for byte"
    served._ingest.step()
    said = {call(api, method, f"/v1/acme/jobs/{job_id}{verb}") for job_id in map(str, (stored, waiting, never))}
    assert [got.status for got in said] == [404]


def test_what_was_in_the_store_before_it_was_acknowledged_is_known_at_once(served: Daemon) -> None:
    api = app(served, tokens=False)
    add(served, "mail", b"waits")
    (keyed,) = add(served, "mail", b"x", key="k1", tenant="other")
    assert call(api, "GET", f"/v1/other/jobs/{keyed}").status == 200
    served._ingest.step()
    assert call(api, "GET", f"/v1/acme/jobs/{keyed}").status == 404
    assert call(api, "GET", f"/v1/acme/jobs/{keyed + (1 << 20)}").status == 404


def test_what_comes_while_somebody_asks_does_not_keep_them_waiting(
    served: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else under a steady load, with something in the journal at any time, nothing could ever be said not to exist."""
    monkeypatch.setattr(module, "ON_ITS_WAY", 60.0)
    api = app(served, tokens=False)
    (job_id,) = add(served, "mail", b"before")
    never = job_id + (3 << 16)
    journal = served.journal
    looks = 0

    def taken(position: Any) -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:
            served._ingest.step()
            served.journal.write_now(batch)
        return original(position)

    batch = Batch("acme", "mail", sequence_of(never) + 10, (b"after",), 1)
    original = journal.is_taken
    monkeypatch.setattr(journal, "is_taken", taken)
    assert call(api, "GET", f"/v1/acme/jobs/{never}").status == 404
    assert journal.waiting_jobs == 1
    assert looks < 10
