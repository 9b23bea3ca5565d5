"""What Django documents for backends, as far as adding goes. In a TestCase all of it is in one transaction."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import TestCase, override_settings
from django.utils import timezone

from hipq.django.tasks import (
    PACKAGE,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from lab import tasks
from lab.models import Note

if PACKAGE == "django.tasks":
    from django.tasks import default_task_backend, task
    from django.tasks.exceptions import TaskResultMismatch
else:
    from django_tasks import default_task_backend, task
    from django_tasks.exceptions import TaskResultMismatch


def with_context(word: str) -> str:
    return word


def plain() -> None: ...


class Adding(TestCase):
    def test_what_it_supports(self) -> None:
        backend = default_task_backend
        self.assertTrue(backend.supports_defer)
        self.assertTrue(backend.supports_async_task)
        self.assertTrue(backend.supports_get_result)
        self.assertTrue(backend.supports_priority)

    def test_a_result_that_is_ready(self) -> None:
        before = timezone.now() - timedelta(seconds=60)  # a database server has a clock of its own
        result = tasks.add.enqueue(1, b=2)
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertFalse(result.is_finished)
        self.assertEqual((result.args, result.kwargs), ([1], {"b": 2}))
        self.assertEqual((result.errors, result.worker_ids, result.attempts), ([], [], 0))
        self.assertEqual((result.started_at, result.finished_at, result.last_attempted_at), (None, None, None))
        self.assertGreaterEqual(result.enqueued_at, before)
        self.assertEqual(result.backend, "default")
        self.assertEqual(result.task, tasks.add)
        self.assertIsInstance(result.id, str)
        self.assertLessEqual(len(result.id), 64)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value

    def test_it_is_found_again_in_the_same_transaction(self) -> None:
        result = tasks.mail.using(priority=-3, run_after=timezone.now() + timedelta(days=400)).enqueue()
        again = tasks.mail.get_result(result.id)
        self.assertEqual(again, result)
        self.assertEqual(again.task.priority, -3)
        self.assertEqual(again.task.queue_name, "mails")
        self.assertEqual(again.task.run_after, result.task.run_after)
        result.refresh()
        self.assertEqual(again, result)

    def test_async_verbs(self) -> None:
        async def work() -> None:
            result = await tasks.add.aenqueue(4, b=5)
            again = await tasks.add.aget_result(result.id)
            self.assertEqual(again, result)
            await result.arefresh()
            self.assertEqual(result.status, TaskResultStatus.READY)
            with self.assertRaises(TaskResultDoesNotExist):
                await default_task_backend.aget_result("1")

        async_to_sync(work)()

    def test_arguments_become_json(self) -> None:
        result = tasks.echo.enqueue((1, 2), {"a": (3,)}, b"text", none=None, nested={"x": [1.5, True, "é\u2028"]})
        self.assertEqual(result.args, [[1, 2], {"a": [3]}, "text"])
        again = tasks.echo.get_result(result.id)
        self.assertEqual((again.args, again.kwargs), (result.args, result.kwargs))

    def test_arguments_that_are_no_json_are_refused(self) -> None:
        for bad in (object(), {1, 2}, datetime.now(UTC), b"\xff", math.nan, 1 << 70):
            with self.subTest(bad), self.assertRaises((TypeError, ValueError)):
                tasks.echo.enqueue(bad)

    def test_large_arguments(self) -> None:
        text = "x" * 100_000
        result = tasks.echo.enqueue(text)
        self.assertEqual(tasks.echo.get_result(result.id).args, [text])

    def test_results_that_do_not_exist(self) -> None:
        known = int(tasks.add.enqueue(1).id)
        for job_id in (
            "",
            "x",
            "0",
            "-1",
            "1",
            str(known + (1 << 16)),
            "٣",
            "9" * 19,
            "9" * 60,
            str(known) + " ",
            "1.0",
        ):
            with self.subTest(job_id), self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(job_id)

    def test_a_result_of_another_task(self) -> None:
        result = tasks.add.enqueue(1)
        with self.assertRaises(TaskResultMismatch):
            tasks.mail.get_result(result.id)

    def test_tasks_that_are_not_valid(self) -> None:
        def nested() -> None: ...

        bad: list[tuple[Any, dict[str, Any]]] = [
            (nested, {}),
            (plain, {"queue_name": "unknown"}),
            (plain, {"priority": 101}),
            (plain, {"priority": -101}),
            (plain, {"priority": 1.5}),
            (with_context, {"takes_context": True}),
        ]
        for function, options in bad:
            with self.subTest(options), self.assertRaises(InvalidTask):
                task(**options)(function)
        with self.assertRaises(InvalidTask):
            tasks.add.using(run_after=datetime.now())
        with self.assertRaises(InvalidTask):
            tasks.add.using(queue_name="unknown")

    def test_it_is_validated_once_more_when_it_is_added(self) -> None:
        late = tasks.add.using()
        object.__setattr__(late, "priority", 101)
        with self.assertRaises(InvalidTask):
            late.enqueue(1)

    def test_a_signal_says_so(self) -> None:
        heard: list[Any] = []

        def hear(sender: Any, task_result: Any, **_: Any) -> None:
            heard.append((sender, task_result.id, task_result.status))

        task_enqueued.connect(hear)
        try:
            result = tasks.add.enqueue(1)
        finally:
            task_enqueued.disconnect(hear)
        self.assertEqual(heard, [(type(task_backends["default"]), result.id, TaskResultStatus.READY)])

    def test_a_savepoint_that_is_undone_takes_it_along(self) -> None:
        kept = tasks.add.enqueue(1)
        with transaction.atomic():
            undone = tasks.add.enqueue(2)
            Note.objects.create(text="undone")
            transaction.set_rollback(True)
        tasks.add.get_result(kept.id)
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.add.get_result(undone.id)
        self.assertFalse(Note.objects.exists())

    def test_nothing_of_ours_waits_for_the_commit(self) -> None:
        """Tests count the callbacks: those of their own code."""
        with self.captureOnCommitCallbacks() as callbacks:
            tasks.add.enqueue(1)
        self.assertEqual(callbacks, [])

    def test_the_connection_is_as_before(self) -> None:
        Note.objects.create(text="one")
        tasks.add.enqueue(1)
        self.assertEqual([one.text for one in Note.objects.all()], ["one"])
        self.assertEqual(Note.objects.filter(text__in=["one", "two"]).count(), 1)

    @override_settings(USE_TZ=False)
    def test_naive_times(self) -> None:
        wanted = datetime(2040, 7, 1, 12)
        result = tasks.add.using(run_after=wanted).enqueue(1)
        again = tasks.add.get_result(result.id)
        self.assertEqual(again.task.run_after, wanted)
        self.assertIsNone(again.enqueued_at.tzinfo)
        self.assertLess(abs(again.enqueued_at - datetime.now()), timedelta(hours=1))
