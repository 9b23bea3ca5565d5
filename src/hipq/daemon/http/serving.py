"""A daemon that serves: uvicorn in front of it, and the signals that stop both."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn

from hipq.daemon.daemon import Daemon
from hipq.daemon.http.api import app
from hipq.daemon.http.connections import Connections
from hipq.daemon.http.fast_protocol import AtOnceProtocol
from hipq.daemon.http.request import Limits
from hipq.errors import HipqError
from hipq.observe import logs
from hipq.signals import each_meant

STOP_SECONDS: Final = 10
"""How long requests under way may take when it is to stop."""
WATCH_SECONDS: Final = 0.5

_log = logging.getLogger("hipq")


class Serving:
    """A daemon behind a socket, until it is told to stop or cannot go on. Told once more, it gives back what runs."""

    def __init__(self, daemon: Daemon, listening: socket.socket, limits: Limits, *, tokens: bool) -> None:
        self._daemon, self._listening = daemon, listening
        logging.getLogger("uvicorn").handlers[:] = logs.LOGGER.handlers  # what it says looks like the rest
        self._api = app(daemon, tokens=tokens, limits=limits)
        self._server = uvicorn.Server(uvicorn.Config(
            self._api, access_log=False, log_config=None, log_level="warning", server_header=False,
            proxy_headers=False, ws="none", timeout_graceful_shutdown=STOP_SECONDS, timeout_keep_alive=75,
            http=AtOnceProtocol.within(limits.head_seconds, Connections(limits.connections)),
        ))  # fmt: skip
        self._heard = each_meant(self._stop)
        self._told = 0

    def run(self, ready: Callable[[], None]) -> None:
        """`ready` is called when whoever connects is served. HipqError if the daemon could not go on."""
        daemon = self._daemon
        gc.freeze()  # what was loaded stays: to look through it again and again took a tenth of the time of small posts
        gc.set_threshold(20_000, 20, 20)
        signal.signal(signal.SIGHUP, _heard_hangup)
        daemon.start()
        ready()
        try:
            asyncio.run(self._serve()) if os.environ.get("HIPQ_NO_UVLOOP") else _run_fast(self._serve())
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):  # the loop heard them until now; what runs may take an hour
                signal.signal(number, self._heard)
            daemon.stop()
            daemon.close()
        if daemon.failed or daemon.journal.broken:
            raise HipqError(str(daemon.failed or daemon.journal.broken))

    def _stop(self) -> None:
        self._told += 1
        if self._told == 1:
            self._api.stop()
            self._server.should_exit = True
            self._daemon.stop()
        else:
            self._daemon.stop_now()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._heard)
        watching = asyncio.ensure_future(self._watch())
        await self._server._serve([self._listening])
        watching.cancel()

    async def _watch(self) -> None:
        """A journal that cannot be synced, an engine that ended: nothing more may be acknowledged."""
        while not self._server.should_exit:
            await asyncio.sleep(WATCH_SECONDS)
            if self._daemon.health() == "broken":
                self._stop()


def _heard_hangup(_number: int, _frame: Any) -> None:
    """A terminal that closes must not end a daemon that accepts jobs; and there is no configuration to read again."""
    _log.info("SIGHUP: there is nothing to read again, and the daemon goes on")


def _run_fast(main: Any) -> None:
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        uvloop.run(main)
