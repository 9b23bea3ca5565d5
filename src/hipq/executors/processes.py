"""Handlers in processes of their own: those that ask for it, and suspects after a crash.

A fork server is forked when the engine is made, before it has threads or a connection: a quiet copy of the program that
does nothing but fork children when asked. So a child has every handler, closures too, and none of the engine's locks.
(A lock that some other thread of the program held at that moment stays held in the children.)

    engine --- socket ---> fork server --- fork ---> child
       \\______________ one socket a child __________/

A child that dies takes nobody along. The fork server says on the child's socket how it ended; when the engine dies, the
sockets close, and fork server and children end by themselves.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NoReturn

from hipq.signals import how_ended

Serve = Callable[[bytes, Callable[[], bool], Callable[[bytes], None]], bytes]
"""Runs a job and returns how it ended. It can ask whether the engine wants it to stop, and send reports meanwhile."""

GRACE: Final = 5.0
"""Seconds a child has to stop when it is told to."""
_DIED: Final = 1 << 63
"""Set in a message's length if the message is not a reply but the exit code of the child."""
_WORD: Final = 1 << 62
"""Set in a message's length if the message is a report that the child sends before its reply."""


class ForkServerGone(Exception):
    """No more children can be forked in this process. That is not the fault of the job that wanted one."""


class ForkServer:
    """Forks children on request and lends them out, each for one job at a time."""

    def __init__(self, serve: Serve) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        _flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks with threads: see above
            self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _live(partial(_serve_forks, theirs, serve))
        theirs.close()

    @contextmanager
    def child(self, reuse: bool) -> Iterator[Child]:
        """A child to run one job. `reuse`: it may have run others before, and may run more after."""
        child = (self._living() if reuse else None) or self._fork()
        try:
            yield child
        except BaseException:
            child.close()
            raise
        if not reuse or child.dead:
            child.close()
            return
        with self._lock:
            self._idle.append(child)

    def _living(self) -> Child | None:
        """An idle child, if there is one. One that died meanwhile is passed over: the next job must not be blamed for
        it."""
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                # an idle child sends nothing unless it dies
                if _silent(child.connection) and not child.dead:
                    return child
                child.close()
        return None

    def _fork(self) -> Child:
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                socket.send_fds(self._socket, [b"+"], [theirs.fileno()])
            theirs.close()  # before waiting for the child's first word: else its end would not be seen
            return Child(ours)
        except (OSError, ValueError) as error:
            ours.close()
            raise ForkServerGone(f"no child process could be had: {error}") from None
        finally:
            theirs.close()

    def close(self) -> None:
        for child in self._idle:
            child.close()
        self._socket.shutdown(socket.SHUT_RDWR)  # a close alone ends nothing while a forked process has the socket too
        self._socket.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass


class Child:
    """The engine's end of one child process."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self.dead = False
        self._gone = False
        """Whether the child is dead, or about to be: its process id may soon be another's."""
        self.turn = 0
        """How many jobs the child has run to their end."""
        self._told: threading.Timer | None = None
        self.pid = int(self._receive())

    def exchange(self, request: bytes, hear: Callable[[bytes], None]) -> bytes:
        """Send a job and wait for how it ended. ChildProcessError if the process died meanwhile. `hear` is called with
        the reports that the child sends."""
        try:
            _send(self.connection, request)
        except OSError:
            pass  # it died before it could read: what it left to read says how
        reply = self._receive(hear)
        with self._lock:
            self.turn += 1
        if self._told:  # its handler has ended in time; what that started may not have
            self.kill()
        return reply

    def _receive(self, hear: Callable[[bytes], None] | None = None) -> bytes:
        how = "vanished"
        while len(header := _read(self.connection, 8)) == 8:
            (length,) = struct.unpack("!Q", header)
            body = _read(self.connection, length & ~(_DIED | _WORD))
            if length & _DIED:
                how = how_ended(int(body))
                break
            if not length & _WORD:
                return body
            if hear:
                hear(body)
        with self._lock:
            self.dead = self._gone = True
        raise ChildProcessError(f"the process that ran it {how}")

    def end(self, turn: int, gently: bool) -> None:
        """End the child and whatever it started, if it still runs that job: at once or, with `gently`, tell it to stop,
        and kill it if it takes no notice."""
        with self._lock:
            if self._gone or turn != self.turn:
                return
            self.dead = True
            if not gently:
                _signal_group(self.pid, signal.SIGKILL)
                return
            self._told = threading.Timer(GRACE, self.kill)
            self._told.daemon = True
            self._told.start()
            try:
                self.connection.sendall(b"!")  # so that the child knows that the signal is the engine's
            except OSError:
                pass  # it is dead already
            _signal_group(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        with self._lock:
            self.dead = True
            if not self._gone:
                _signal_group(self.pid, signal.SIGKILL)

    def close(self) -> None:
        with self._lock:
            self._gone = True
            if self._told:
                self._told.cancel()
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is dead already
        self.connection.close()


def _silent(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return not poll.poll(0)


def _signal_group(pid: int, number: int) -> None:
    for kill in (os.killpg, os.kill):  # the second for one that left its group
        try:
            kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError, OSError):
            pass  # there is none, or the handler closed it


def _read(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        try:
            more = connection.recv(min(length - len(found), 1 << 20))
        except OSError:
            break
        if not more:
            break
        found += more
    return found


def _send(connection: socket.socket, body: bytes, flag: int = 0) -> None:
    connection.sendall(struct.pack("!Q", len(body) | flag) + body)


def _live(life: Callable[[], None]) -> NoReturn:
    """Live the life of a forked process, which must never end in the program it was forked from."""
    code = 0
    try:
        life()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the engine is gone: nobody waits for it
    except BaseException:
        traceback.print_exc()
        code = 70
    finally:
        os._exit(code)


def _serve_forks(engine: socket.socket, serve: Serve) -> None:
    """The fork server's loop: fork when asked, report the dead, end with the engine."""
    children: dict[int, socket.socket] = {}
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)  # Ctrl-C reaches the whole group; the engine decides when we end
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(engine, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
            _reap(children)
        if engine.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(engine, 1, 1)
        if not message:  # the engine closed us, or died
            for pid in children:
                _signal_group(pid, signal.SIGKILL)
            return
        connection = socket.socket(fileno=descriptors[0])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            engine.close()
            for other in children.values():
                other.close()
            _live(partial(_serve_jobs, connection, serve))
        try:
            os.setpgid(pid, pid)  # here and in the child: whoever is first
        except OSError:
            pass
        children[pid] = connection


def _reap(children: dict[int, socket.socket]) -> None:
    while children:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None:
            return
        _signal_group(dead.si_pid, signal.SIGKILL)  # whatever it started goes with it; its number is still its own
        pid, status = os.waitpid(dead.si_pid, 0)
        connection = children.pop(pid)
        try:
            _send(connection, str(os.waitstatus_to_exitcode(status)).encode(), _DIED)
        except OSError:
            pass  # the engine has let go of it already
        connection.close()


def _serve_jobs(connection: socket.socket, serve: Serve) -> None:
    """A child's loop: run one job after another until the engine closes the socket."""
    os.setpgid(0, 0)
    me = os.getpid()
    _send(connection, str(me).encode())
    while len(header := _read(connection, 8)) == 8:
        request = _read(connection, struct.unpack("!Q", header)[0])
        reply = serve(request, lambda: not _silent(connection), partial(_send, connection, flag=_WORD))
        _flush()
        if os.getpid() != me:
            return  # a process that the handler forked came here: it must not reply
        _send(connection, reply)
