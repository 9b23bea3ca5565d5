"""Mounted in the frameworks people have, by uvicorn as it comes: it works there, and no log shows a whole URL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hipq import Hipq
from tests.callback.serving import Served

FASTAPI = """
from fastapi import FastAPI
from hipq import callbacks
from shop import app

web = FastAPI()
web.mount("/in/hipq", callbacks(app))


@web.get("/")
def home():
    return "home"
"""
STARLETTE = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from hipq import callbacks
from shop import app

web = Starlette(routes=[Route("/", lambda request: JSONResponse("home")), Mount("/in/hipq", callbacks(app))])
"""
DJANGO = """
from django.conf import settings
settings.configure(ROOT_URLCONF="main", SECRET_KEY="x", ALLOWED_HOSTS=["*"])

import django
from django.core.asgi import get_asgi_application
from django.http import JsonResponse
from django.urls import path

from hipq import callbacks
from shop import app

urlpatterns = [path("", lambda request: JsonResponse("home", safe=False))]
django_app = get_asgi_application()
hipq_app = callbacks(app)


async def web(scope, receive, send):
    is_ours = scope["type"] == "http" and scope["path"].startswith("/in/hipq/")
    await (hipq_app if is_ours else django_app)(scope, receive, send)
"""
ALONE = """
from hipq import callbacks
from shop import app

web = callbacks(app)
"""
PROGRAMS = {"fastapi": FASTAPI, "starlette": STARLETTE, "django": DJANGO, "alone": ALONE}


@pytest.mark.parametrize("framework", PROGRAMS)
def test_it_can_be_mounted(framework: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(PROGRAMS[framework])
    url = f"sqlite:///{tmp_path}/shop.db"
    shop = Hipq("shop", url)
    shop.migrate()
    row = shop.store.get(shop.queue("orders").enqueue("charge"))
    assert row
    token = shop.signer.sign(row, shop.store.now() + 3600 * 1_000_000)
    command = [sys.executable, "-m", "uvicorn", "main:web", "--port", "0", "--log-level", "debug"]
    server = Served(tmp_path, url, *command)
    try:
        assert server.post(token, b'{"a": 1}', path="/in/hipq/") == (202, {"answer": "buffered"})
        assert server.post(token, b'{"a": 2}', path="/in/hipq/", hipq_answer_id="m").status == 202
        assert server.post(token[:-1], path="/in/hipq/").status == 403
        assert server.post(token + "/more", path="/in/hipq/").status == 403
        connection = server.connection()
        connection.request("GET", "/")
        expected = (404, b'{"error": "there is nothing here"}') if framework == "alone" else (200, b'"home"')
        response = connection.getresponse()
        assert (response.status, response.read()) == expected
        connection.close()
        assert [one.data for one in shop.answers.list()] == [{"a": 1}, {"a": 2}]
    finally:
        server.stop()
        shop.close()
    assert f'"POST /in/hipq/{token[:6]}... HTTP/1.1" 202' in server.log
    for part in (token, token.partition(".")[0], token.partition(".")[2]):
        assert part not in server.log
    assert "Traceback" not in server.log
