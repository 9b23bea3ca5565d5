"""The pool of connections, and what is at odds with closing it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from hipq.errors import StoreError
from hipq.stores.postgres.session import Session
from hipq.stores.postgres.store import PostgresStore
from tests.servers import clean_database


def test_closing_does_not_wait_for_a_connection_that_is_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both took one lock, and the pool gave up after five seconds: every second program ended that late."""
    settled, opening = Session.settle_in, threading.Event()

    def slowly(conn: Any) -> None:
        opening.set()
        time.sleep(0.3)
        settled(conn)

    monkeypatch.setattr(Session, "settle_in", slowly)
    with clean_database() as url:
        store = PostgresStore(url)

        def use() -> None:
            with suppress(StoreError):
                store.migrate()

        user = threading.Thread(target=use)
        user.start()
        assert opening.wait(30)
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 4.5  # the pool gives its threads five seconds
        user.join(30)
        with pytest.raises(StoreError, match="this store was closed"):
            store.queues()
