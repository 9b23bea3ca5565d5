"""What becomes of tasks when a worker runs. Their transactions are real ones here."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import TransactionTestCase, override_settings
from django.utils import timezone

from hipq import Hipq
from hipq.django.tasks import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)
from lab import tasks
from lab.models import Note

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
SUCCESSFUL, FAILED = TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED


def configured(queues: list[str] | None = None, **options: Any) -> Any:
    ours = {"BACKEND": "hipq.django.HipqBackend", "QUEUES": ["default", "mails"] if queues is None else queues}
    return override_settings(TASKS={"default": {**ours, "OPTIONS": options}})


def work(**options: Any) -> None:
    call_command("hipq_worker", until_empty=True, verbosity=0, **options)


@contextmanager
def heard() -> Iterator[list[tuple[str, str, str]]]:
    """What the signals of workers say: which, of which task, at what status."""
    said: list[tuple[str, str, str]] = []

    def start(sender: Any, task_result: Any, **_: Any) -> None:
        assert sender is type(task_backends["default"])
        said.append(("started", task_result.id, task_result.status))

    def finish(sender: Any, task_result: Any, **_: Any) -> None:
        assert sender is type(task_backends["default"])
        assert task_result.finished_at is not None
        assert task_result.errors or task_result.status == SUCCESSFUL
        said.append(("finished", task_result.id, task_result.status))
        raise RuntimeError("what a listener raises is not the task's fault")

    task_started.connect(start)
    task_finished.connect(finish)
    try:
        yield said
    finally:
        task_started.disconnect(start)
        task_finished.disconnect(finish)


class Working(TransactionTestCase):
    def setUp(self) -> None:
        """Django empties the tables of its models after each test, and no others."""
        with connection.cursor() as cursor:
            for table in connection.introspection.table_names(cursor):
                if table.startswith("django_tasks_"):
                    cursor.execute(f"DELETE FROM {table}")

    def test_a_task_succeeds(self) -> None:
        result = tasks.add.enqueue(1, b=2)
        with heard() as said:
            work()
        self.assertEqual(said, [("started", result.id, RUNNING), ("finished", result.id, SUCCESSFUL)])
        result.refresh()
        self.assertEqual((result.status, result.return_value, result.is_finished), (SUCCESSFUL, 3, True))
        self.assertEqual((result.attempts, len(result.worker_ids), result.errors), (1, 1, []))
        self.assertLessEqual(result.enqueued_at, result.started_at)
        self.assertEqual(result.started_at, result.last_attempted_at)
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(tasks.add.get_result(result.id), result)

    def test_a_task_fails(self) -> None:
        result, other = tasks.divide.enqueue(0), tasks.divide.enqueue(1)
        with heard() as said, self.assertLogs(level="ERROR") as logged:
            work()
        self.assertEqual(
            sorted(one for one in said if one[0] == "finished"),
            sorted([("finished", result.id, FAILED), ("finished", other.id, SUCCESSFUL)]),
        )
        self.assertIn("ZeroDivisionError", "".join(logged.output))  # with what was raised, as Django's own logs have it
        result.refresh()
        self.assertEqual((result.status, result.attempts), (FAILED, 1))
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value
        (error,) = result.errors
        self.assertEqual(error.exception_class_path, "builtins.ZeroDivisionError")
        self.assertIs(error.exception_class, ZeroDivisionError)
        self.assertIn("return 1 / a", error.traceback)

    def test_what_a_task_returns_must_be_json(self) -> None:
        result = tasks.bad_value.enqueue()
        with heard() as said:
            work()
        result.refresh()
        self.assertEqual((result.status, result.errors[0].exception_class), (FAILED, TypeError))
        self.assertEqual([one for one in said if one[0] == "finished"], [("finished", result.id, FAILED)])

    def test_tuples_come_back_as_lists(self) -> None:
        result = tasks.echo.enqueue((1, (2,)), a={"b": ()})
        work()
        result.refresh()
        self.assertEqual(result.return_value, [[[1, [2]]], {"a": {"b": []}}])

    def test_async_tasks_with_the_database(self) -> None:
        async def add() -> Any:
            return await tasks.add_later.aenqueue(1, 2)

        result = async_to_sync(add)()
        work()
        async_to_sync(result.arefresh)()
        self.assertEqual((result.status, result.errors), (SUCCESSFUL, []))
        self.assertEqual(result.return_value, 3)
        self.assertEqual(Note.objects.get().text, "async")

    def test_the_context(self) -> None:
        result = tasks.about.enqueue("word")
        work()
        result.refresh()
        self.assertEqual(result.return_value, ["word", 1, result.id, "RUNNING", 1])

    def test_a_higher_priority_goes_first(self) -> None:
        for priority in (0, -100, 100, 50, -50, 1):
            tasks.note.using(priority=priority).enqueue(str(priority))
        work(concurrency=1)
        order = [int(one.text) for one in Note.objects.order_by("id")]
        self.assertEqual(order, [100, 50, 1, 0, -50, -100])

    def test_the_same_priority_goes_by_time(self) -> None:
        for number in range(5):
            tasks.note.enqueue(str(number))
        work(concurrency=1)
        self.assertEqual([one.text for one in Note.objects.order_by("id")], list("01234"))

    def test_no_task_runs_before_its_time(self) -> None:
        later = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
        past = tasks.add.using(run_after=timezone.now() - timedelta(days=1)).enqueue(2)
        work()
        later.refresh()
        past.refresh()
        self.assertEqual((later.status, past.status), (READY, SUCCESSFUL))

    def test_a_worker_of_some_queues(self) -> None:
        mail, other = tasks.mail.enqueue(), tasks.add.enqueue(1)
        work(queues="mails")
        mail.refresh()
        other.refresh()
        self.assertEqual((mail.status, other.status), (SUCCESSFUL, READY))
        work()
        other.refresh()
        self.assertEqual(other.status, SUCCESSFUL)

    def test_a_rollback_leaves_nothing(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            undone = tasks.note.enqueue("undone")
            Note.objects.create(text="undone too")
            _ = 1 / 0
        work()
        self.assertFalse(Note.objects.exists())
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.note.get_result(undone.id)

    def test_nobody_sees_it_before_the_commit(self) -> None:
        seen: list[Any] = []

        def look(job_id: str) -> None:
            try:
                seen.append(task_backends["default"].get_result(job_id).status)
            except TaskResultDoesNotExist:
                seen.append(None)
            finally:
                connection.close()

        def elsewhere(job_id: str) -> None:
            thread = threading.Thread(target=look, args=[job_id])
            thread.start()
            thread.join()

        with transaction.atomic():
            result = tasks.add.enqueue(1)
            elsewhere(result.id)
        elsewhere(result.id)
        self.assertEqual(seen, [None, READY])

    def test_what_a_failed_task_wrote(self) -> None:
        """Outside of atomic() it stays, as in a view; the thread's connection is good for the next task."""
        failed, good = tasks.fail_after_writing.enqueue(), tasks.note.enqueue("next")
        work(concurrency=1)
        good.refresh()
        failed.refresh()
        self.assertEqual((failed.status, good.status), (FAILED, SUCCESSFUL))
        self.assertEqual([one.text for one in Note.objects.order_by("id")], ["before", "next"])

    def test_a_task_adds_a_task(self) -> None:
        result = tasks.chain.enqueue("second")
        work()
        result.refresh()
        self.assertEqual(tasks.note.get_result(result.return_value).status, SUCCESSFUL)
        self.assertEqual(Note.objects.get().text, "second")

    def test_code_that_has_gone(self) -> None:
        """Or that has not come yet: the jobs are left to workers that have it."""
        result = tasks.add.enqueue(1)
        kept = tasks.add
        del tasks.add
        try:
            with self.assertLogs("hipq", "WARNING") as logged:
                work()
            with self.assertRaises(ImportError):
                task_backends["default"].get_result(result.id)
        finally:
            tasks.add = kept
        self.assertIn("jobs of lab.tasks.add in queue default wait", "".join(logged.output))
        result.refresh()
        self.assertEqual((result.status, result.attempts), (READY, 0))
        work()
        result.refresh()
        self.assertEqual(result.return_value, 1)

    def test_a_job_is_of_the_type_that_its_task_is_named(self) -> None:
        result = tasks.mail.enqueue()
        with closing(task_backends["default"].worker()) as app:
            job = app.job(int(result.id))
            self.assertEqual((job.type, job.key), ("lab.tasks.mail", result.id))
            self.assertEqual(job.data, {"args": [], "kwargs": {}, "backend": "default"})
            app.pause("mails", type="lab.tasks.mail")
            work()
            result.refresh()
            self.assertEqual(result.status, READY)
            app.resume("mails", type="lab.tasks.mail")
        work()
        result.refresh()
        self.assertEqual(result.status, SUCCESSFUL)

    def test_failures_are_tried_again_if_settings_say_so(self) -> None:
        with configured(retry={"attempts": 5, "base": 0}), heard() as said:
            result = tasks.third_time.enqueue()
            work()
            result.refresh()
        self.assertEqual((result.status, result.attempts), (SUCCESSFUL, 3), result.errors)
        self.assertEqual(result.return_value, 3)
        self.assertEqual([error.exception_class for error in result.errors], [ConnectionError] * 2)
        self.assertIn("not at attempt 2", result.errors[1].traceback)
        self.assertLess(result.started_at, result.last_attempted_at)
        self.assertEqual([one for one in said if one[0] == "finished"], [("finished", result.id, SUCCESSFUL)])

    def test_failures_are_tried_again_until_it_is_enough(self) -> None:
        with configured(retry={"attempts": 2, "base": 0}), heard() as said:
            result = tasks.third_time.enqueue()
            work()
            result.refresh()
        self.assertEqual((result.status, result.attempts, len(result.errors)), (FAILED, 2, 2))
        self.assertIn("Traceback", result.errors[1].traceback)
        self.assertEqual([one for one in said if one[0] == "finished"], [("finished", result.id, FAILED)])

    def test_a_task_may_say_what_handlers_say(self) -> None:
        with configured(retry={"attempts": 5, "base": 0}), heard() as said:
            refused, again = tasks.refuse.enqueue(), tasks.ask_again.enqueue()
            work()
            refused.refresh()
            again.refresh()
        self.assertEqual((refused.status, refused.attempts), (FAILED, 1))
        self.assertIn("no such customer", refused.errors[0].traceback)
        self.assertEqual((again.status, again.return_value, again.attempts), (SUCCESSFUL, "at last", 2))
        self.assertEqual(len([one for one in said if one[0] == "finished"]), 2)

    def test_a_job_that_was_cancelled(self) -> None:
        result = tasks.add.enqueue(1)
        backend = task_backends["default"]
        with closing(backend.worker()) as app:
            app.cancel(int(result.id), reason="not wanted")
        result.refresh()
        self.assertEqual((result.status, result.attempts), (FAILED, 0))
        self.assertIn("not wanted", result.errors[0].traceback)
        self.assertTrue(issubclass(result.errors[0].exception_class, Exception))

    def test_jobs_of_others_are_no_results(self) -> None:
        with closing(Hipq("django_tasks", task_backends["default"].location.url())) as app:
            job_id = app.queue("default", order="priority").enqueue("something", {})
            other = Hipq("other_app", app.url)
            theirs = other.queue("default").enqueue("task", {})
            other.close()
        for strange in (job_id, theirs):
            with self.assertRaises(TaskResultDoesNotExist):
                task_backends["default"].get_result(str(strange))

    def test_any_queue(self) -> None:
        """QUEUES that are empty allow all: tables are made when the first task comes, in a transaction or not."""
        with configured([]):
            results = [tasks.add.using(queue_name="unheard_of").enqueue(1)]
            if connection.vendor == "sqlite":
                with transaction.atomic(), self.assertRaisesMessage(ImproperlyConfigured, "name it in QUEUES"):
                    tasks.add.using(queue_name="nor_of_this").enqueue(2)
            else:
                with transaction.atomic():
                    results.append(tasks.add.using(queue_name="nor_of_this").enqueue(2))
                with transaction.atomic():
                    undone = tasks.add.using(queue_name="at_all").enqueue(3)
                    transaction.set_rollback(True)
                with self.assertRaises(TaskResultDoesNotExist):
                    task_backends["default"].get_result(undone.id)
            results.append(tasks.add.using(queue_name="at_all").enqueue(4))
            work()
            for result in results:
                result.refresh()
                self.assertEqual(result.status, SUCCESSFUL)

    def test_no_connection_is_left_behind(self) -> None:
        if connection.vendor != "postgresql":
            self.skipTest("only a server can say who is connected")
        for number in range(20):
            tasks.note.enqueue(str(number))
        work()
        self.assertEqual(Note.objects.count(), 20)
        query = "SELECT pg_stat_clear_snapshot(), count(*) FROM pg_stat_activity WHERE datname = current_database()"
        until = time.monotonic() + 30  # a server takes a moment to see that somebody has gone
        with connection.cursor() as cursor:
            cursor.execute(query)
            while (found := cursor.fetchone()[1]) != 1 and time.monotonic() < until:
                time.sleep(0.01)
                cursor.execute(query)
        self.assertEqual(found, 1)

    def test_a_url_of_its_own(self) -> None:
        """Not in Django's database: then not in its transaction, either."""
        with self.settings(), configured(url="sqlite:///apart.db"):
            out = StringIO()
            call_command("hipq_migrate", stdout=out)
            self.assertIn("default: ", out.getvalue())
            with transaction.atomic():
                kept = tasks.add.enqueue(1)
                transaction.set_rollback(True)
            work()
            kept.refresh()
            self.assertEqual(kept.status, SUCCESSFUL)

    def test_an_application_of_its_own(self) -> None:
        with configured(app="lab.instance:app"):
            call_command("hipq_migrate", verbosity=0)
            result = tasks.add.enqueue(20, b=1)
            work()
            result.refresh()
            self.assertEqual(result.return_value, 21)
            from lab.instance import app

            self.assertEqual(app.job(int(result.id)).state, "final")
        with configured(app="lab.tasks:add"), self.assertRaisesMessage(CommandError, "not a Hipq"):
            work()
