"""A TCP proxy in front of a server that can fall silent, as a hung balancer does: its kernel still takes what comes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


class Proxy:
    """While it is `silent` it accepts connections and passes nothing on. While it is `dumb` it passes on what clients
    say, and nothing of what the server answers."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._said = threading.Event()
        self._answered = threading.Event()
        self._sockets: list[socket.socket] = []
        self.dumb_at = b""
        """It is struck dumb as it passes this on; and forgets it then."""

    def silence(self) -> None:
        self._said.clear()
        self._answered.clear()

    def strike_dumb(self) -> None:
        self._answered.clear()

    def heal(self) -> None:
        self._said.set()
        self._answered.set()

    def __enter__(self) -> Self:
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        for one in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._pass_on, args=(server, client, self._answered), daemon=True)
        back.start()
        self._pass_on(client, server, self._said)
        back.join()
        for one in (client, server):
            one.close()

    def _pass_on(self, source: socket.socket, target: socket.socket, may: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                may.wait()
                if may is self._said and self.dumb_at and self.dumb_at in data:
                    self.dumb_at = b""
                    self.strike_dumb()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


class CommitCutter(Proxy):
    """Cuts connections at a COMMIT: before the server gets it, or after, so that the client never hears of it."""

    def __init__(self, host: str, port: int, how: Callable[[], str]) -> None:
        """`how` is asked about every COMMIT: "before", "after", or "" to let it pass."""
        super().__init__(host, port)
        self._how = how
        self._unheard: set[socket.socket] = set()
        """Servers that have a COMMIT whose answer is not passed on."""

    def _pass_on(self, source: socket.socket, target: socket.socket, may: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(65536)) and source not in self._unheard:
                how = self._how() if may is self._said and b"COMMIT\0" in data else ""
                if how == "before":
                    break
                if how == "after":
                    self._unheard.add(target)
                target.sendall(data)
        self._unheard.discard(source)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
