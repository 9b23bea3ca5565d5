"""Publishing due tasks to the broker, as they would have been when they were sent."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kombu.pools import ProducerPool
from kombu.utils.json import loads

from hipq.celery.message import TaskMessage

CONCURRENCY: Final = 10
"""The number of tasks published at a time, each over a connection of its own."""
RETRY_POLICY: Final = {"max_retries": 2, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
"""Retries for a stale connection. An absent broker is left to the job's retry handler."""
CONFIRM_SECONDS: Final = 30.0


class Publisher:
    """Publishes over its own connections, with confirmation if the broker supports it."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._pool: Any = None
        self._pid = 0

    def publish(self, message: TaskMessage) -> None:
        """Publish a message; returns when the broker has it."""
        options = loads(message.options)
        if "confirm_timeout" in options and options["confirm_timeout"] is None:
            options["confirm_timeout"] = CONFIRM_SECONDS
        if message.expires_at is not None:
            options["expiration"] = max(0.0, message.expires_at - time.time())
        with self._producer() as producer:
            producer.publish(
                message.text(),
                exchange=message.exchange,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                headers=loads(message.headers),
                declare=message.to_declare(self._app.amqp.queues),
                retry=True,
                retry_policy=dict(RETRY_POLICY),
                **options,
            )

    @contextmanager
    def _producer(self) -> Iterator[Any]:
        with self._lock:
            if self._pid != os.getpid():  # the sockets in a forked child are the parent's
                self._pid, self._pool = os.getpid(), self._opened()
        with self._pool.acquire(block=True) as producer:
            yield producer

    def _opened(self) -> Any:
        connection = self._app.connection_for_write(heartbeat=0)  # nobody would send any between two tasks
        if connection.transport.driver_name == "py-amqp":
            connection.transport_options["confirm_publish"] = True
        return ProducerPool(connection.Pool(limit=CONCURRENCY), limit=CONCURRENCY)

    def close(self) -> None:
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.force_close_all()
                self._pool.connections.force_close_all()
            self._pool, self._pid = None, 0
