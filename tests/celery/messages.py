"""Celery apps on brokers of all kinds, the messages that their queues get, and all that is kept published at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery, chain, group
from celery.canvas import StampingVisitor
from kombu import Exchange, Queue

import hipq.celery
from hipq import Hipq
from tests.celery.running import forget_in_redis

ETA = datetime.now(UTC).replace(microsecond=123456) + timedelta(days=40)


def add(*some: Any, **more: Any) -> None:
    """Never runs: these tests are about messages."""


class Stamp(StampingVisitor):  # type: ignore[misc]
    def on_signature(self, sig: Any, **_: Any) -> dict[str, Any]:  # noqa: ARG002
        return {"customer": "ann", "stamped_headers": ["customer"]}


class Case:
    """An app on a broker, its queues with names of their own."""

    def __init__(self, broker: str, **settings: Any) -> None:
        self.name = f"hipq_test_{uuid4().hex}"
        topic = Exchange(f"{self.name}_topic", type="topic")
        self.queues = [
            Queue(self.name, Exchange(self.name), routing_key=self.name, max_priority=10),
            Queue(f"{self.name}_slow", topic, routing_key="slow.#"),
        ]
        self.app = Celery("case", broker=broker, set_as_current=False)
        self.app.conf.update(
            task_queues=self.queues, task_default_queue=self.name,
            accept_content=["json", "pickle"], **settings,
        )  # fmt: skip
        self.add = self.app.task(name="add", typing=False)(add)

    def send(self) -> None:
        """One task of each kind, far ahead; each with an id that says which it is."""
        add, topic = self.add, self.queues[1].exchange
        word = "Zürich \u2028 \U0001f600 \x00"
        far: dict[str, Any] = {"eta": ETA}
        add.apply_async((1, word), {"b": [None, 1.5, {"x": word}]}, task_id="plain", **far)
        add.apply_async((1, 2), task_id="priority", priority=7, **far)
        add.apply_async((1, 2), task_id="pickle", serializer="pickle", **far)
        add.apply_async((1, "2" * 5000), task_id="zlib", compression="zlib", **far)
        add.apply_async((1, 2), task_id="headers", headers={"trace": "00-ab", "at": ETA, "deep": ["é"]}, **far)
        add.apply_async((1, 2), task_id="queue", queue=f"{self.name}_slow", **far)
        add.apply_async((1, 2), task_id="routed", exchange=topic, routing_key="slow.indeed", **far)
        add.apply_async(
            (1, 2), task_id="new queue", queue=Queue(f"{self.name}_new", Exchange(""), routing_key=""), **far
        )
        add.apply_async((1, 2), task_id="options", time_limit=9, soft_time_limit=8, shadow="shown", ignore_result=True,
                        delivery_mode=1, retries=3, correlation_id="mine", reply_to="there", **far)  # fmt: skip
        add.apply_async((1, 2), task_id="links", link=add.s(3), link_error=add.si(4, 5), **far)
        self.app.send_task("elsewhere", (1,), task_id="by name", **far)
        chain(add.s(1, 2).set(task_id="chain", **far), add.s(3).set(task_id="chained", **far)).apply_async()
        group(add.s(1, 2).set(task_id="group 1", **far), add.s(3, 4).set(task_id="group 2", **far)).apply_async(
            task_id="a group"
        )
        stamped = add.s(1, 2).set(task_id="stamped", **far)
        stamped.stamp(Stamp())
        stamped.apply_async()

    def got(self, count: int, raw: bool = False) -> dict[str, Any]:
        """What its queues have, by id: all that a consumer is shown."""
        found: dict[str, Any] = {}
        until = time.monotonic() + 60
        with self.app.connection_for_read() as connection:
            names = [self.name, f"{self.name}_slow", f"{self.name}_new"]
            channel = connection.default_channel
            while len(found) < count:
                assert time.monotonic() < until, found.keys()
                for name in names:
                    while message := _taken(channel, name):
                        found[self._id(message)] = message if raw else self._shown(message)
        return found

    def clean(self) -> None:
        if str(self.app.conf.broker_url).startswith("redis"):
            forget_in_redis(self.app.conf.broker_url, self.name)
            return
        with self.app.connection_for_write() as connection:
            for name in (self.name, f"{self.name}_slow", f"{self.name}_new"):
                connection.default_channel.queue_delete(name)
            for name in (self.name, f"{self.name}_topic"):
                with suppress(KeyError):  # in memory it is there only if this connection has declared it
                    connection.default_channel.exchange_delete(name)

    def _id(self, message: Any) -> str:
        if message.headers.get("id"):
            return str(message.headers["id"])
        message.accept = {"application/json", "application/x-python-serialize"}
        return str(message.decode()["id"])  # protocol 1

    def _shown(self, message: Any) -> dict[str, Any]:
        own = ("delivery_tag", "timestamp")
        told = {name: value for name, value in message.properties.items() if name not in own}
        info = {name: message.delivery_info.get(name) for name in ("exchange", "routing_key", "priority")}
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        for value in ({"name": told.pop("application_headers", None)}, told.pop("headers", None)):
            assert value in (None, {"name": None}, {"name": message.headers}, message.headers)
        return {"headers": dict(message.headers), "properties": told, "info": info, "body": body,
                "content": (message.content_type, message.content_encoding)}  # fmt: skip


def _taken(channel: Any, queue: str) -> Any:
    try:
        message = channel.basic_get(queue, no_ack=True)
    except channel.connection.client.channel_errors:
        return None
    return message and channel.message_to_python(message) if not hasattr(message, "decode") else message


@contextmanager
def kept_in(case: Case, folder: Path, **options: Any) -> Iterator[Hipq]:
    try:
        yield hipq.celery.install(case.app, f"sqlite:///{folder}/kept.db", **options)
    finally:
        hipq.celery.uninstall(case.app)


def publish_all(kept: Hipq) -> None:
    """All that is kept is due now."""
    kept.jobs.retry_all("eta")
    kept.run(until_empty=True)
    assert {job.code for job in kept.jobs("eta")} == {"ok"}


def ids(kept: Hipq) -> set[str]:
    """Of the tasks that wait for their time."""
    return {job.key for job in kept.jobs("eta", state="initial")}
