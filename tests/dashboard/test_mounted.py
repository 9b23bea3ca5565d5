"""Mounted in the frameworks people have, by uvicorn as it comes: pages, streams, and an end though somebody looks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq
from hipq.dashboard import asgi
from tests import processes
from tests.dashboard.serving import eventually

SHOP = """
from hipq import Hipq
from hipq.dashboard import asgi

shop = Hipq("shop", "sqlite:///shop.db")
shop.queue("orders").job("charge")(lambda _: None)
shop.migrate()
dashboard = asgi(shop, tokens={"ann": ("admin", "a-secret-of-ann-here")})
"""
FASTAPI = """
from fastapi import FastAPI

web = FastAPI()
web.mount("/tools/hipq", dashboard)


@web.get("/")
def home():
    return "home"
"""
STARLETTE = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route


async def home(request):
    return JSONResponse("home")


web = Starlette(routes=[Route("/", home), Mount("/tools", routes=[Mount("/hipq", dashboard)])])
"""
ALONE = "web = dashboard\n"
HOSTS = {"fastapi": (FASTAPI, "/tools/hipq"), "starlette": (STARLETTE, "/tools/hipq"), "alone": (ALONE, "")}


class Host:
    def __init__(self, folder: Path, source: str, base: str) -> None:
        (folder / "main.py").write_text(SHOP + source)
        self.base, self._log = base, folder / "uvicorn.log"
        command = [sys.executable, "-m", "uvicorn", "main:web", "--port", "0", "--log-level", "debug"]
        with self._log.open("wb") as log:
            self.process = processes.Popen(command, cwd=folder, stdout=log, stderr=log, env={**os.environ})
        self.port = int(eventually(self._port))

    @property
    def log(self) -> str:
        return self._log.read_text()

    def _port(self) -> str:
        assert self.process.poll() is None, self.log
        found = re.search(r"running on http://127\.0\.0\.1:(\d+)", self.log)
        return found[1] if found else ""

    def get(self, path: str, token: str = "a-secret-of-ann-here") -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse()


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    running = Host(tmp_path, *HOSTS[request.param])
    yield running
    if running.process.poll() is None:
        running.process.kill()
    running.process.wait()


def test_it_works_there_and_ends_with_it(host: Host) -> None:
    page = host.get(f"{host.base}/jobs")
    assert page.status == 200
    text = page.read().decode()
    assert f'href="{host.base}/rules"' in text
    for path in re.findall(r'(?:src|href)="([^"]*/static/[^"]*)"', text):
        assert path.startswith(f"{host.base}/static/")
        assert host.get(path, token="").status == 200
    assert host.get(f"{host.base}/jobs", token="").status == 401
    assert host.get(f"{host.base}/live?page=/", token="").status == 401
    if host.base:
        assert json.loads(host.get("/").read()) == "home"
    else:
        assert "Application startup complete" in host.log, "it answers a server that asks whether it has started"
    stream = host.get(f"{host.base}/live?page=/jobs")
    assert stream.status == 200
    assert stream.readline() == b"retry: 1000\n"
    host.process.send_signal(signal.SIGINT)
    host.process.wait(10)
    assert stream.read().endswith(b"\n")
    assert "Traceback" not in host.log
    assert "Cancel" not in host.log


def test_a_websocket_is_closed() -> None:
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message)

    dashboard = asgi(Hipq("shop", "sqlite://"))
    asyncio.run(dashboard({"type": "websocket", "path": "/live", "headers": []}, receive, send))
    assert said == [{"type": "websocket.close", "code": 1000}]
