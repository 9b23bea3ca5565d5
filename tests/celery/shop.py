"""A Celery app, as real workers, `hipq worker` and the tests themselves load it; its settings are in the environment.

SHOP_BROKER, SHOP_BACKEND    where it sends tasks and results
SHOP_PREFIX                  before all names in Redis, and the name of its queue: the server has other users
SHOP_DB                      where hipq keeps far tasks; without it hipq is not installed
SHOP_BOOK                    a file, to which a line is written for each task received and each run
SHOP_KILL                    "after": the first publisher is killed when the broker has the task; "before": just before
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import task_received

import hipq.celery
from hipq.celery.message import TaskMessage
from hipq.celery.publisher import Publisher

FAR = 0.0
"""Seconds: all that is not due yet is kept. With more, a slow machine would find some tasks too near."""

_environment = os.environ
PREFIX = _environment.get("SHOP_PREFIX", "shop")
app = Celery("shop", broker=_environment.get("SHOP_BROKER", "memory://"), backend=_environment.get("SHOP_BACKEND"))
app.conf.update(
    task_default_queue=PREFIX,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
if str(app.conf.broker_url).startswith("redis"):
    app.conf.broker_transport_options = {
        "global_keyprefix": f"{PREFIX}:",
        "visibility_timeout": float(_environment.get("SHOP_VISIBILITY", "3600")),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }
if str(app.conf.result_backend).startswith("redis"):
    app.conf.result_backend_transport_options = {"global_keyprefix": f"{PREFIX}:"}
if db := _environment.get("SHOP_DB"):
    kept = hipq.celery.install(app, db, further_than=FAR, in_workers="SHOP_ALONE" not in _environment)


def write(event: str, job_id: str, **more: Any) -> None:
    with Path(_environment["SHOP_BOOK"]).open("a") as book:  # one short write: lines of several processes do not mix
        book.write(json.dumps({"event": event, "id": job_id, "pid": os.getpid(), **more}) + "\n")


@task_received.connect
def received(request: Any, **_: Any) -> None:
    write("received", request.id)


@app.task(bind=True)
def note(self: Any, word: str) -> str:
    write("ran", self.request.id, word=word, retries=self.request.retries)
    return word


@app.task(bind=True, max_retries=2)
def stubborn(self: Any) -> str:
    write("ran", self.request.id, retries=self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=1.5)
    return "at last"


@app.task(bind=True)
def join(self: Any, words: list[str]) -> str:
    write("ran", self.request.id, words=words)
    return " ".join(words)


@app.task(bind=True)
def second(self: Any, word: str) -> str:
    write("ran", self.request.id, word=word)
    return f"{word}, then this"


if how := _environment.get("SHOP_KILL"):
    _publish, _killed = Publisher.publish, Path(f"{_environment['SHOP_BOOK']}.killed")

    def publish(self: Publisher, message: TaskMessage) -> None:
        if how == "after":
            _publish(self, message)
        if not _killed.exists():
            _killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "before":
            _publish(self, message)

    Publisher.publish = publish  # type: ignore[method-assign]
