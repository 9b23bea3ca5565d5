"""An address to listen on, and uvicorn behind it until the command is told to stop."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

from hipq.cli.complain import note
from hipq.errors import HipqError, Invalid
from hipq.observe import logs
from hipq.supervisor import end_with

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
STOP_SECONDS: Final = 10
"""How long requests under way may take when it is to stop."""
BACKLOG: Final = 2048


def check_uvicorn(command: str, extra: str) -> None:
    """Invalid if this command's server is not installed."""
    if find_spec("uvicorn") is None:
        raise Invalid(f"{command} needs uvicorn: pip install 'hipq[{extra}]'")


def bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (socket.gaierror, ValueError):  # UnicodeError is one
        raise Invalid(f"there is no address {host!r:.80} to listen on") from None
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise HipqError(f"cannot listen on {host} port {port}: {why}") from None


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def announce_address(listening: socket.socket) -> None:
    note(f"listening on {address(listening)}")


def serve_until_told(
    application: Any, listening: socket.socket, ready: Callable[[], None], lifeline: int | None = None
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is called when whoever connects will be served."""
    import uvicorn  # only commands that serve need it

    logging.getLogger("uvicorn").handlers[:] = logs.LOGGER.handlers  # what it says looks like the rest
    server = uvicorn.Server(uvicorn.Config(
        application, access_log=False, log_config=None, log_level="warning", server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS, ws="none",
    ))  # fmt: skip  # access_log would have the URLs in it

    def stop(*_: object) -> None:  # before uvicorn listens to signals; and after, when it sends itself the signal again
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    if lifeline is not None:
        end_with(lifeline)
    ready()
    server.run(sockets=[listening])
