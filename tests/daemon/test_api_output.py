"""What a handler prints is followed while it runs."""

from __future__ import annotations

import json
import threading
from typing import Any

from hipq.daemon.job_output import KEPT, JobOutput
from tests.daemon.api_serving import Tenant, eventually, site

SLOW = """
import os, sys, time
print("begins", payload, flush=True)
until = time.time() + 60
while not os.path.exists(payload):
    time.sleep(0.01)
    assert time.time() < until
print("it is \\x1b[31mthere", flush=True)
"""


class Following:
    """A reader of the events of one job's output."""

    def __init__(self, tenant: Tenant, job_id: str) -> None:
        self._link = tenant.daemon.connect()
        path = f"/v1/{tenant.name}/jobs/{job_id}/output"
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {tenant.token}\r\nconnection: close\r\n\r\n"
        self._link.sendall(head.encode())
        self.text = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while part := self._link.recv(4096):
            self.text += part

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.text.decode().replace("\r\n", "\n").split("\n")
        return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line.endswith("}")]

    @property
    def printed(self) -> str:
        return "".join(event["text"] for event in self.events if event["event"] == "output")

    def ended(self) -> dict[str, Any]:
        self._thread.join(60)
        return self.events[-1]


def test_what_a_handler_prints_is_told_while_it_runs(tmp_path: Any) -> None:
    tenant, gate = site().tenant(), tmp_path / "go"
    tenant.handler("slow", SLOW)
    (job_id,) = tenant.add("slow", str(gate).encode())
    eventually(lambda: tenant.job(job_id)["state"] == "running")
    first = Following(tenant, job_id)
    eventually(lambda: f"begins {gate}\n" in first.printed)
    late = Following(tenant, job_id)
    eventually(lambda: f"begins {gate}\n" in late.printed)
    assert tenant.job(job_id)["state"] == "running"
    gate.touch()
    for one in (first, late):
        assert one.ended() == {"event": "ended", "state": "final", "code": "ok"}
        assert one.printed == f"begins {gate}\nit is \\x1b[31mthere\n", (
            "each line once, and nothing that moves a cursor"
        )
    after = Following(tenant, job_id)
    assert after.ended()["event"] == "ended"
    assert after.printed == first.printed, "from the history of the job"


def test_another_tenants_output_does_not_exist(tmp_path: Any) -> None:
    tenant, other, gate = site().tenant(), site().tenant(), tmp_path / "go"
    tenant.handler("slow", SLOW)
    (job_id,) = tenant.add("slow", str(gate).encode())
    eventually(lambda: tenant.job(job_id)["state"] == "running")
    assert other("GET", f"/v1/{{}}/jobs/{job_id}/output").status == 404
    gate.touch()


def test_little_is_kept_of_much() -> None:
    output = JobOutput()
    output.began(1)
    for n in range(10_000):
        output.printed(1, b"%d\n" % n)
    output.printed(1, b"x" * (10 * KEPT))
    assert sum(map(len, output._running[1].last)) <= 2 * KEPT
    output.ended(1)
    output.printed(1, b"of nobody")
    assert output._running == {}
