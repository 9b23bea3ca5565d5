"""`WaiterBackend`: tasks as messages of SQS, and in DynamoDB as long as they are further out; on moto's server."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint
from tests.django.lab import PATIENCE, Lab, sqlite
from tests.waiter.cloud import Cloud


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    for name, value in {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    return Cloud(aws_endpoint())


Made = Callable[..., tuple[Lab, str]]


@pytest.fixture
def made(cloud: Cloud, tmp_path: Path) -> Made:
    """A project whose tasks are messages of a queue that has a table; and the queue."""

    def make(fifo: bool = False, visibility: int = 3600, **options: Any) -> tuple[Lab, str]:
        queue, _ = cloud.with_table(fifo=fifo)
        options |= {"endpoint_url": cloud.endpoint, "region": REGION, "wait": 1, "visibility": visibility}
        backend = {"BACKEND": "hipq.django.WaiterBackend", "QUEUES": ["default", "mails", queue]}
        return Lab(tmp_path, sqlite(tmp_path / "lab.db"), backend={**backend, "OPTIONS": options}), queue

    return make


def notes(lab: Lab) -> list[str]:
    with closing(sqlite3.connect(lab.folder / "lab.db")) as conn:
        return [text for (text,) in conn.execute("SELECT text FROM lab_note ORDER BY id")]


ADDING = """
import asyncio
from datetime import timedelta
from django.core.checks import run_checks
from django.test import override_settings
from django.utils import timezone
from hipq.django.tasks import InvalidTask, TaskResultStatus, task_backends, task_enqueued
backend = task_backends["default"]
assert (backend.supports_defer, backend.supports_async_task) == (True, True)
assert (backend.supports_get_result, backend.supports_priority) == (False, False)
assert [one.id for one in run_checks()] == [], run_checks()
heard = []
def hear(sender, task_result, **_):
    heard.append(task_result.id)
task_enqueued.connect(hear)
mine = tasks.add.using(queue_name=QUEUE)
now, soon, far = [
    mine.using(run_after=None if hours is None else timezone.now() + timedelta(hours=hours)).enqueue(1, b=(2,))
    for hours in (None, 0.1, 400)
]
later = asyncio.run(mine.aenqueue(5))
assert heard == [now.id, soon.id, far.id, later.id]
assert now.status == TaskResultStatus.READY and now.kwargs == {"b": [2]} and now.enqueued_at <= timezone.now()
for refused, wrong in [
    (lambda: mine.using(priority=1), InvalidTask),
    (lambda: mine.using(queue_name="unknown"), InvalidTask),
    (lambda: mine.enqueue(object()), TypeError),
    (lambda: mine.get_result(now.id), NotImplementedError),
]:
    try:
        refused()
    except wrong:
        pass
    else:
        raise AssertionError(refused)
told = []
for queues, options in [(["a b"], {}), (["default"], {"tables": 1}), (["default"], {"attempts": -1})]:
    wrong = {"BACKEND": "hipq.django.WaiterBackend", "QUEUES": queues, "OPTIONS": options}
    with override_settings(TASKS={"default": wrong}):
        told += sorted({one.id for one in run_checks()})
assert "hipq.E001" in told, told
out = [now.id, soon.id, far.id, later.id]
"""


def test_adding(made: Made, cloud: Cloud) -> None:
    lab, queue = made()
    now, soon, far, later = lab.do(ADDING.replace("QUEUE", repr(queue)))
    bodies = {body["id"]: body for body in map(json.loads, cloud.bodies(queue))}
    assert sorted(bodies) == sorted([now, later])
    assert bodies[now]["task"] == "lab.tasks.add"
    assert cloud.delayed(queue) == 1
    (item,) = cloud.items(queue)
    assert far in str(item)
    assert soon not in str(item)
    assert cloud.waiter(queue).cancel(queue, far).job_id == far, "the task's id is the message's"
    assert cloud.items(queue) == []


def test_working(made: Made) -> None:
    """Good ones are done, failing ones come again until they are good, or have been tried often enough."""
    lab, queue = made(visibility=1, attempts=3)
    lab.do(f"""
q = {queue!r}
tasks.note.using(queue_name=q).enqueue("good")
tasks.add_later.using(queue_name=q).enqueue(1, 2)
tasks.note_attempts.using(queue_name=q).enqueue(9)
tasks.refuse.using(queue_name=q).enqueue()
out = 0
""")
    with lab.worker("-q", queue) as worker:
        lab.until(lambda: {"good", "async", "attempt 3"} <= set(notes(lab)))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    assert sorted(notes(lab)) == ["async", "attempt 1", "attempt 2", "attempt 3", "good"]
    assert "consumer stopped" in lab.said()


def test_a_task_whose_worker_was_killed_runs_again(made: Made, cloud: Cloud) -> None:
    lab, queue = made(visibility=5)
    lab.do(f"out = tasks.linger.using(queue_name={queue!r}).enqueue({str(lab.folder)!r}, 600).id")

    def began() -> int:
        return len(list(lab.folder.glob("began-*")))

    with lab.worker("-q", queue) as first:
        lab.until(began)
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE)
    with lab.worker("-q", queue) as second:
        lab.until(lambda: began() == 2)
        second.send_signal(signal.SIGTERM)
        (lab.folder / "go").touch()
        assert second.wait(PATIENCE) == 0
    assert cloud.bodies(queue) == {}


def test_a_fifo_queue_is_in_order(made: Made) -> None:
    lab, queue = made(fifo=True)
    lab.do(f"out = [tasks.note.using(queue_name={queue!r}).enqueue(str(n)).id for n in range(8)]")
    with lab.worker("-q", queue) as worker:
        lab.until(lambda: len(notes(lab)) == 8)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    assert notes(lab) == list("01234567")


def test_sqs_never_says_that_it_is_empty(made: Made) -> None:
    lab, queue = made()
    assert "leave --until-empty out" in lab.manage("hipq_worker", "-q", queue, "--until-empty", status=2)
