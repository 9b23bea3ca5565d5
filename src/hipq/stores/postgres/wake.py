"""Waking engines in other processes: NOTIFY when a job is due soon, and one connection that LISTENs.

Both are accelerators. A notice that is lost, or a connection that broke, costs a wait until the engine looks again.
Behind a pooler nobody can LISTEN: then engines only look, once a second, unless a URL of its own leads to the server.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import psycopg

from hipq.stores.claim_groups import TOP, RankPosition
from hipq.stores.postgres.connection import CannotListen
from hipq.stores.postgres.insert import cursor
from hipq.stores.postgres.session import Session
from hipq.stores.waker import NOTIFIED, News, Waker

CHANNEL: Final = "hipq"
RETRY_SECONDS: Final = 1.0
_TOLD: Final = re.compile(rb"(\d{1,5}):([!-9;-~]{0,64}):(\d{1,19})")
_NO_LISTEN: Final = (
    "PostgreSQL: a pooler such as PgBouncer is in between, so this engine cannot LISTEN and looks for jobs once a "
    "second; set HIPQ_LISTEN_URL to a direct address of the server to start them at once"
)
_NOT_THERE: Final = "%s; this engine looks for jobs once a second instead, and tries again"
_NOTIFY: Final = f"SELECT pg_notify('{CHANNEL}', %s)".encode()


def notify(conn: psycopg.Connection[Any], queue: int, place: RankPosition) -> None:
    """Tell other processes, when the transaction commits: `queue:rank:id`."""
    cursor(conn).execute(_NOTIFY, (f"{queue}:{place[0]}:{place[1]}",))


class Listener:
    """A connection that hears notices. It is opened in the background: no wait is longer for it."""

    def __init__(
        self,
        connect: Callable[[], Session | None],
        is_own: Callable[[int], bool],
        heard: Callable[[int, RankPosition], None],
        began: Callable[[], None],
    ) -> None:
        self._connect, self._is_own, self._heard, self._began = connect, is_own, heard, began
        self._lock = threading.Lock()
        self._conn: Session | None = None
        self._news: dict[int, RankPosition] = {}
        """What was heard and not yet taken."""
        self._opening = self._closed = self._told = False
        self._try_at = 0.0

    def fileno(self) -> int:
        """The descriptor to select on; -1 while there is nothing to hear."""
        with self._lock:
            if self._conn:
                return self._conn.fileno()
            if not self._opening and not self._closed and time.monotonic() >= self._try_at:
                self._opening = True
                threading.Thread(target=self._open, name="hipq-listen", daemon=True).start()
            return -1

    def _open(self) -> None:
        conn, later = None, RETRY_SECONDS
        try:
            conn = self._connect()
            if conn is None:
                self._closed = True
                logging.getLogger("hipq").warning(_NO_LISTEN)
                return
            psycopg.Cursor(conn).execute(f"LISTEN {CHANNEL}".encode())
            self._told = False
        except CannotListen as error:
            later = error.later
            if not self._told and not self._closed:
                logging.getLogger("hipq").warning(_NOT_THERE, error)
            self._told = True
        except psycopg.Error:
            if conn:
                conn.close()
        with self._lock:
            self._opening = False
            self._try_at = time.monotonic() + later
            if conn and self._closed:
                conn.close()
            if conn is None or conn.closed:
                return
            self._conn = conn
        self._began()  # what happened before it listened was not heard

    def hear(self) -> bool:
        """Take in the notices that have arrived. Returns whether there is news to take."""
        with self._lock:
            if self._conn is None:
                return bool(self._news)
            try:
                self._conn.pgconn.consume_input()
            except psycopg.OperationalError:
                self._conn.close()
                self._conn = None
                self._news.update(NOTIFIED)  # nobody knows what it would have told
            while self._conn and (notice := self._conn.pgconn.notifies()):
                if self._is_own(notice.be_pid):
                    continue  # we know: it would only make us look for what is not there
                if told := _TOLD.fullmatch(notice.extra):  # anybody may use the channel
                    queue, place = int(told[1]), (told[2].decode(), int(told[3]))
                    self._heard(queue, place)
                    if self._news.get(queue) != TOP:  # else all must look already
                        self._news[queue] = place
            return bool(self._news)

    def take(self) -> News:
        """The news since the last call; of each queue the latest."""
        with self._lock:
            news, self._news = self._news, {}
            return news

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._conn is not None

    def reopen(self) -> None:
        """The server was silent: this connection may be, too, and nothing would show it."""
        with self._lock:
            if self._conn:
                self._conn.close()
                self._conn = None

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.reopen()


class ListeningWaker(Waker):
    """Wakes an engine when another process tells of something to do."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def wait(self, seconds: float) -> News:
        descriptor = self._listener.fileno()
        seconds = 0 if self._listener.hear() else seconds
        notified, _ = self.sleep(seconds, () if descriptor < 0 else (descriptor,))
        self._listener.hear()
        news = self._listener.take()
        return {**news, **NOTIFIED} if notified else news

    @property
    def hears_queues(self) -> bool:
        return self._listener.is_open
