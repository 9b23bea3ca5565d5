"""`hipq callbacks`: what it says when it starts, when it cannot, and when it is to stop."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.cli.callbacks import serve_callbacks
from hipq.cli.main import cli
from tests.callback.serving import Served, hipq_callbacks
from tests.cli.conftest import HipqCommand


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.commands, "callbacks", serve_callbacks)
    monkeypatch.delenv("HIPQ_CALLBACK_URL", raising=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_what_urls_begin_with(tmp_path: Path, number: int) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    server = Served(tmp_path, url)
    assert server.post("rubbish").status == 403
    assert server.stop(number) == 0
    assert server.log.splitlines() == [
        f"database: {url}",
        f"listening on http://127.0.0.1:{server.port}",
        "callback URLs begin with https://shop.example/hipq",
    ]


def test_it_says_how_urls_get_a_beginning(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("from hipq import Hipq\napp = Hipq('shop')\n")
    command = [word.replace("shop:app", "bare:app") for word in hipq_callbacks("--log-format", "json")]
    server = Served(tmp_path, f"sqlite:///{tmp_path}/shop.db", *command)
    assert server.stop() == 0
    assert "Hipq(..., callback_url=), $HIPQ_CALLBACK_URL, or callback_url in hipq.toml" in server.log


def test_its_options_are_used(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    server = Served(tmp_path, url, *hipq_callbacks("--size", "10", "--rate", "2"))
    shop = Hipq("shop", url)
    row = shop.store.get(shop.queue("orders").enqueue("charge"))
    assert row
    token = shop.signer.sign(row, shop.store.now() + 3600 * 1_000_000)
    shop.close()
    assert server.post(token, b"x" * 11).status == 413
    assert server.post(token, b"x" * 10).status == 202
    assert 429 in [server.post(token).status for _ in range(20)]
    assert server.stop() == 0


def test_a_port_that_is_in_use_is_one_sentence(hipq: HipqCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = hipq("callbacks", "shop:app", "--port", str(port))
    assert ran.status == 1
    assert ran.complaint == f"hipq: cannot listen on 127.0.0.1 port {port}: address already in use"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "65536"], "port must be a whole number from 0 to 65535"),
        (["--size", "0"], "size must be a whole number from 1 to"),
        (["--rate", "-1"], "rate must be a whole number from 0 to"),
        (["--host", "no.such.host.invalid"], "there is no address 'no.such.host.invalid' to listen on"),
        (["--host", "\0"], "there is no address"),
        (["--host", "x" * 300], "there is no address"),
    ],
)
def test_bad_input_is_one_sentence(hipq: HipqCommand, options: list[str], said: str) -> None:
    ran = hipq("callbacks", "shop:app", *options)
    assert ran.status == 2
    assert said in ran.complaint


def test_without_uvicorn_it_says_what_brings_it(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = hipq("callbacks", "shop:app")
    assert (ran.status, ran.complaint) == (2, "hipq: hipq callbacks needs uvicorn: pip install 'hipq[callbacks]'")


def test_a_database_that_is_not_there_is_said_at_once(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_DATABASE_URL", "postgresql://postgres@127.0.0.1:1/none")
    ran = hipq("callbacks", "shop:app", "--port", "0")
    assert ran.status == 1
    assert "PostgreSQL" in ran.complaint


def test_help_has_examples(hipq: HipqCommand) -> None:
    ran = hipq("callbacks", "--help")
    assert ran.status == 0
    assert "hipq callbacks shop:app --host 0.0.0.0" in ran.out
