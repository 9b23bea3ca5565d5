"""What `manage.py check` says, and what happens to those who did not ask it."""

from __future__ import annotations

from io import StringIO
from typing import Any

from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import TestCase, TransactionTestCase, override_settings

from hipq.django.tasks import InvalidTask, task_backends
from lab import tasks


def backend(queues: list[str] | None = None, **options: Any) -> Any:
    ours = {"BACKEND": "hipq.django.HipqBackend", "QUEUES": ["default"] if queues is None else queues}
    return override_settings(TASKS={"default": {**ours, "OPTIONS": options}})


def found(**which: Any) -> list[tuple[str, str]]:
    return [(str(one.id), one.msg) for one in run_checks(**which) if str(one.id).startswith("hipq.")]


class Settings(TestCase):
    def test_nothing_is_wrong(self) -> None:
        self.assertEqual(found(), [])
        self.assertEqual(found(databases=["default"]), [])

    def test_options_that_are_wrong(self) -> None:
        bad: list[tuple[dict[str, Any], str]] = [
            ({"databse": "default"}, "databse"),
            ({"database": "default", "url": "sqlite:///x.db"}, "database and url"),
            ({"app": "x:y", "name": "mine"}, "a name already"),
            ({"database": 7}, "must be a text"),
            ({"name": "Mine"}, "OPTIONS['name']"),
            ({"retry": {"attemps": 3}}, "hipq.backoff"),
            ({"retry": "lab.tasks.nothing"}, "cannot be imported"),
            ({"retry": 3}, "policy"),
            ({"timeout": "long"}, "OPTIONS['timeout']"),
        ]
        for options, part in bad:
            with self.subTest(options), backend(**options):
                ((job_id, message),) = found()
                self.assertEqual(job_id, "hipq.E001")
                self.assertIn("TASKS['default']", message)
                self.assertIn(part, message)
                with self.assertRaisesMessage(ImproperlyConfigured, part):
                    tasks.add.enqueue(1)
                with self.assertRaisesMessage(CommandError, part):
                    call_command("hipq_worker", until_empty=True, verbosity=0)

    def test_a_database_that_is_not_there(self) -> None:
        with backend(database="other"):
            self.assertEqual([job_id for job_id, _ in found()], ["hipq.E002"])
            with self.assertRaisesMessage(ImproperlyConfigured, "no database 'other'"):
                tasks.add.enqueue(1)

    def test_a_database_that_hipq_does_not_know(self) -> None:
        vendor = type(connections["default"]).vendor
        try:
            type(connections["default"]).vendor = "oracle"
            ((job_id, message),) = found()
        finally:
            type(connections["default"]).vendor = vendor
        self.assertEqual(job_id, "hipq.E002")
        self.assertIn("oracle", message)

    def test_queue_names(self) -> None:
        with backend(["low-priority", "default"]):
            ((job_id, message),) = found()
            self.assertEqual(job_id, "hipq.E004")
            self.assertIn("low-priority", message)
            with self.assertRaisesMessage(InvalidTask, "low-priority"):
                tasks.add.using(queue_name="low-priority")

    def test_tables_that_are_missing(self) -> None:
        with backend(["default", "brandnew"]):
            self.assertEqual(found(), [])  # which does not ask the database
            ((job_id, message),) = found(databases=["default"])
            self.assertEqual(job_id, "hipq.W001")
            self.assertIn("brandnew", message)

    def test_an_app_that_is_not_installed(self) -> None:
        with self.modify_settings(INSTALLED_APPS={"remove": ["hipq.django"]}):
            self.assertEqual([job_id for job_id, _ in found()], ["hipq.E005"])

    def test_an_old_sqlite_is_told_to_those_who_deploy(self) -> None:
        import sqlite3

        concerned = connections["default"].vendor == "sqlite" and sqlite3.sqlite_version_info < (3, 51, 3)
        told = [job_id for job_id, _ in found(include_deployment_checks=True)]
        self.assertEqual(told, ["hipq.W002"] if concerned else [])

    def test_a_worker_for_something_else(self) -> None:
        package = task_backends.__class__.__module__
        dummy = f"{package}.backends.dummy.DummyBackend"
        with override_settings(TASKS={"default": {"BACKEND": dummy}}):
            with self.assertRaisesMessage(CommandError, "DummyBackend"):
                call_command("hipq_worker", until_empty=True)
            with self.assertRaisesMessage(CommandError, "no such backend"):
                call_command("hipq_migrate")
        with self.assertRaisesMessage(CommandError, "no queue 'nothing'"):
            call_command("hipq_worker", queues="nothing", until_empty=True)
        with self.assertRaises(CommandError):
            call_command("hipq_worker", backend="nothing", until_empty=True)

    def test_an_application_that_is_not_there(self) -> None:
        for app, part in [("lab.nowhere:app", "No module named 'lab.nowhere'"), ("lab.tasks:ap", "no attribute 'ap'")]:
            with self.subTest(app), backend(app=app):
                ((job_id, message),) = found()
                self.assertEqual(job_id, "hipq.E001")
                self.assertIn(part, message)

    def test_a_queue_that_the_application_does_not_declare(self) -> None:
        with backend(["charges", "chargs"], app="lab.payments:app"):
            ((job_id, message),) = found()
        self.assertEqual(job_id, "hipq.W003")
        self.assertIn("QUEUES has chargs, and the application", message)

    def test_a_worker_in_a_transaction_would_see_nothing_of_it(self) -> None:
        with self.assertRaisesMessage(CommandError, "call it outside of atomic(), in a test in a TransactionTestCase"):
            call_command("hipq_worker", until_empty=True, verbosity=0)


class OutsideOfTransactions(TransactionTestCase):
    def test_a_worker_cannot_work_in_memory(self) -> None:
        if connections["default"].vendor != "sqlite" or not connections["default"].is_in_memory_db():
            self.skipTest("this database is not in memory")
        with self.assertRaisesMessage(CommandError, "is in memory"):
            call_command("hipq_worker", until_empty=True, stderr=StringIO())
