"""Counts of jobs of all kinds, a reason in a body, a language that is left empty, SIGHUP."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.daemon.api_serving import eventually, site
from tests.databases import STORES

NAPS = 12
"""More than one tenant has slots at one daemon."""


@pytest.mark.parametrize("store", STORES)
def test_queues_count_jobs_of_every_kind(store: str) -> None:
    tenant = site(store).tenant()
    tenant.handler("waits", "return 202, ''", waits=True)
    tenant.handler("works", "import time\nif payload == 'nap': time.sleep(600)\nreturn payload")
    tenant.handler("fails", "raise ValueError('no')")
    tenant.ended(tenant.add("works", b"quick")[0])
    tenant.add("waits", b"x")
    tenant.add("fails", b"x")
    tenant.add("works", b"x", "?dt=2040-01-01T00:00:00Z")

    def counts(name: str) -> dict[str, int]:
        got = tenant("GET", "/v1/{}/queues").json
        assert got["more"] is False
        found = [one for one in got["queues"] if one["type"] == name]
        return {kind: count for one in found for kind, count in one.items() if count and kind != "type"}

    eventually(lambda: counts("waits") == {"waiting_for_answer": 1})
    eventually(lambda: counts("fails") == {"retrying": 1})
    naps = tenant.add("works", b"nap\n" * NAPS)

    def are_some_of_both() -> bool:
        found = counts("works")
        both = found.get("running", 0), found.get("waiting", 0)
        return min(both) > 0 and sum(both) == NAPS and (found["done"], found["scheduled"]) == (1, 1)

    eventually(are_some_of_both)
    for job_id in reversed(naps):
        assert tenant("POST", f"/v1/{{}}/jobs/{job_id}/cancel").status == 200
    eventually(lambda: counts("works") == {"done": 1 + NAPS, "scheduled": 1})


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b'{"reason": "ordered twice"}', "application/json", "ordered twice"),
        (b"ordered twice", "text/plain", "ordered twice"),
        (b"ordered twice\n", "", "ordered twice"),
        (b"", "", "cancelled over HTTP"),
    ],
)
def test_cancel_reads_its_body(body: bytes, kind: str, reason: str) -> None:
    tenant = site().tenant()
    (job_id,) = tenant.add("later", b"x", "?dt=2040-01-01T00:00:00Z")
    got = tenant("POST", f"/v1/{{}}/jobs/{job_id}/cancel", body, **({"content_type": kind} if kind else {}))
    assert got.status == 200, got
    assert reason in got.json["error"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "application/json"), (b"[]", "application/json"), (b'{"why": "x"}', "application/json"),
        (b'{"reason": 7}', "application/json"), (b'{"reason": ""}', "application/json"), (b"\xff", "text/plain"),
        (b"x" * 1001, "text/plain"), (b"a\0b", "text/plain"),
    ],
)  # fmt: skip
def test_cancel_refuses_a_body_that_is_no_reason(body: bytes, kind: str) -> None:
    tenant = site().tenant()
    (job_id,) = tenant.add("later", b"x", "?dt=2040-01-01T00:00:00Z")
    got = tenant("POST", f"/v1/{{}}/jobs/{job_id}/cancel", body, content_type=kind)
    assert (got.status, bool(got.error)) == (400, True)
    assert tenant.job(job_id)["state"] == "initial"


def test_a_method_that_is_empty_is_as_if_it_was_absent() -> None:
    tenant = site().tenant()
    for path in ("/{}/handler/add/a/add?method=", "/{}/handler/add/a?method", "/v1/{}/handlers/a?method="):
        verb = "PUT" if "v1" in path else "POST"
        got = tenant(verb, path, {"lang": "python", "body": "return payload"})
        assert (got.status, got.json["lang"]) == (200, "python")
        bare = tenant(verb, path, b"return payload", content_type="text/plain")
        assert (bare.status, "?method=python" in bare.error) == (400, True)


def test_sighup_does_not_kill() -> None:
    here = site()
    daemon = here.daemon()
    for _ in range(3):
        os.kill(daemon.process.pid, signal.SIGHUP)
        time.sleep(0.1)
    eventually(lambda: "SIGHUP" in daemon.log)
    assert daemon.call("GET", "/health").status == 200
    assert daemon.stop() == 0
