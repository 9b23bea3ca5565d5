"""examples/fastapi_app: a real server, driven over HTTP, with its worker inside and apart."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests import processes
from tests.examples.running import EXAMPLES, PATIENCE, environment, jobs, run, started
from tests.servers import clean_database

GOOD = {"available": True, "arrives": "Tuesday"}


@contextmanager
def service(folder: Path, *arguments: str, **more: str) -> Iterator[httpx.Client]:
    """A client of a service that runs; at the end that is asked to stop, and must do so in order."""
    with started("fastapi_app/service.py", folder, "--port", "0", *arguments, **more) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"running on (http://127.0.0.1:\d+)", line):
                break
        else:
            raise AssertionError("".join(said))
        with httpx.Client(base_url=found[1], timeout=PATIENCE) as client:
            yield client
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=PATIENCE)[1]
        assert "Application shutdown complete" in rest
        assert "Traceback" not in rest
        assert process.returncode in (0, -signal.SIGTERM)


def test_a_customer_and_a_supplier(tmp_path: Path) -> None:
    with service(tmp_path) as client:
        printed = run("fastapi_app/client.py", tmp_path, "--url", str(client.base_url).rstrip("/"))
        assert "all as it should be" in printed
    left = jobs(tmp_path / "orders.db", "orders", "orders")
    codes = {job.key.split("-")[0]: job.code for job in left}
    assert codes == {"lamp": "ok", "chair": "ok", "desk": "cancelled", "shelf": "failed", "bed": "failed"}


def became(client: httpx.Client, key: str, body: Any, **query: str) -> tuple[int, str]:
    reply = client.post(f"/callbacks/{key}", json=body, params=query)
    return reply.status_code, reply.json()["became"]


def drive(client: httpx.Client, key: str) -> None:
    """An early callback, the same one again, another one, one for nobody; and what errors look like."""
    assert became(client, f"nobody-{key}", GOOD) == (202, "buffered")
    assert became(client, key, GOOD, event="one") == (202, "buffered")
    assert became(client, key, GOOD, event="one") == (200, "duplicate")
    added = client.post(f"/orders/{key}", json={"item": "lamp", "count": 3})
    assert added.status_code == 202
    job_id = added.json()["id"]
    result = client.get(f"/jobs/{job_id}/result", params={"timeout": 60})
    assert (result.status_code, result.json()["result"]) == (200, {"item": "lamp", "count": 3, "arrives": "Tuesday"})
    assert became(client, key, GOOD, event="one") == (200, "duplicate")
    assert became(client, key, {"available": False}, event="two") == (409, "conflict")
    shown = client.get(f"/jobs/{job_id}").json()
    assert (shown["state"], shown["code"], shown["attempt"]) == ("final", "ok", 1)
    assert client.delete(f"/jobs/{job_id}").status_code == 409
    assert client.get("/jobs/77").status_code == 404
    assert client.get("/jobs/0").status_code == 422
    assert client.get("/jobs/77/result").status_code == 404


def test_callbacks_come_early_twice_and_for_nobody(tmp_path: Path) -> None:
    with service(tmp_path) as client:
        drive(client, "lamp")
        waits = client.post("/orders/waits", json={"item": "desk", "count": 1}).json()["id"]
        slow = client.get(f"/jobs/{waits}/result", params={"timeout": 0.1})
        assert slow.status_code == 202
        assert slow.headers["Retry-After"] == "1"
        again = client.post("/orders/waits", json={"item": "desk", "count": 1})
        assert (again.status_code, again.json()["id"]) == (409, waits)
    with service(tmp_path) as client:  # a job that waits is still there
        assert client.get(f"/jobs/{waits}").json()["state"] in ("initial", "running")
        assert became(client, "waits", GOOD)[0] in (200, 202)
        assert client.get(f"/jobs/{waits}/result", params={"timeout": 60}).status_code == 200
    assert [job.code for job in jobs(tmp_path / "orders.db", "orders", "orders")] == ["ok", "ok"]


def test_a_worker_apart_on_postgresql(tmp_path: Path) -> None:
    with clean_database() as url, service(tmp_path, "--worker", "apart", HIPQ_DATABASE_URL=url) as client:
        command = [sys.executable, "-m", "hipq.cli.main", "worker", "service:jobs"]
        more = environment(HIPQ_DATABASE_URL=url, PYTHONPATH=str(EXAMPLES / "fastapi_app"))
        with processes.Popen(command, cwd=tmp_path, env=more, stderr=subprocess.DEVNULL) as worker:
            try:
                drive(client, f"lamp-{uuid4().hex}")
            finally:
                worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
        assert [job.code for job in jobs(url, "orders", "orders")] == ["ok"]


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_without_its_packages_it_says_what_brings_them(tmp_path: Path, package: str) -> None:
    path = str(EXAMPLES / "fastapi_app/service.py")
    program = f"import runpy, sys; sys.modules[{package!r}] = None; runpy.run_path({path!r})"
    command = [sys.executable, "-c", program]
    done = processes.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        f"this example needs two more packages ({package} is missing): pip install fastapi uvicorn"
    ]
