"""A daemon that serves: uvicorn in front of it, and the signals that stop both, or change their options."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

import uvicorn

from hipq.daemon.daemon import Daemon, Options
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


class Serving:
    """A daemon behind a socket, until it is told to stop or cannot go on. Told once more, it gives back what runs."""

    def __init__(
        self, daemon: Daemon, listening: socket.socket, limits: Limits, *, tokens: bool, proxies: Sequence[str] = ()
    ) -> None:  # fmt: skip
        self._daemon, self._listening = daemon, listening
        logging.getLogger("uvicorn").handlers[:] = logs.LOGGER.handlers  # what it says looks like the rest
        self._connections = Connections(limits.connections)
        self._api = app(daemon, tokens=tokens, limits=limits, connections=self._connections, proxies=proxies)
        self._protocol = AtOnceProtocol.within(limits.head_seconds, self._connections)
        self._server = uvicorn.Server(uvicorn.Config(
            self._api, access_log=False, log_config=None, log_level="warning", server_header=False,
            proxy_headers=False, ws="none", timeout_graceful_shutdown=STOP_SECONDS, timeout_keep_alive=75,
            http=self._protocol,
        ))  # fmt: skip
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that serves, while it does."""
        self._heard = each_meant(self._stop)
        self._told = 0

    def use(self, options: Options, limits: Limits) -> None:
        """These count from now on. Any thread."""
        self._daemon.use(options)
        self._api.use(limits)
        self._protocol.head_seconds = limits.head_seconds
        self._connections.allow(limits.connections)

    def run(self, ready: Callable[[], None], reload: Callable[[], None]) -> None:
        """`ready` is called when whoever connects is served, and `reload`, in a thread, at each SIGHUP. HipqError if
        the daemon could not go on."""
        daemon = self._daemon
        gc.freeze()  # what was loaded stays: to look through it again and again took a tenth of the time of small posts
        gc.set_threshold(20_000, 20, 20)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that closes must not end it before its loop runs
        daemon.start()
        ready()
        try:
            main = self._serve(reload)
            asyncio.run(main) if os.environ.get("HIPQ_NO_UVLOOP") else _run_fast(main)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):  # the loop heard them until now; what runs may take an hour
                signal.signal(number, self._heard)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            daemon.stop()
            daemon.close()
        if daemon.failed or daemon.journal.broken:
            raise HipqError(str(daemon.failed or daemon.journal.broken))

    # -- stopping ---------------------------------------------------------------------------------------------------
    def _stop(self) -> None:
        self._told += 1
        if self._told > 1:
            self._daemon.stop_now()
            self._end()
            return
        self._connections.leaving = True
        self._api.stop()
        self._daemon.stop()
        options, loop = self._daemon.options, self._loop
        if loop is None:
            return
        loop.call_later(options.shutdown_delay, self._close)
        if options.drain is not None:
            loop.call_later(options.drain, self._end)

    def _close(self) -> None:
        """Nobody can connect any more, and requests under way have some time to end."""
        self._server.should_exit = True

    def _end(self) -> None:
        """They have no more time."""
        self._server.should_exit = self._server.force_exit = True

    # -- serving ----------------------------------------------------------------------------------------------------
    async def _serve(self, reload: Callable[[], None]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._heard)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, reload))
        watching = asyncio.ensure_future(self._watch())
        try:
            await self._server._serve([self._listening])
        finally:
            self._loop = None
            watching.cancel()

    async def _watch(self) -> None:
        """A journal that cannot be synced, an engine that ended: nothing more may be acknowledged."""
        while not self._server.should_exit:
            await asyncio.sleep(WATCH_SECONDS)
            if self._daemon.health() == "broken":
                if not self._told:
                    self._stop()
                self._close()  # whatever the delay is


def _run_fast(main: Any) -> None:
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        uvloop.run(main)
