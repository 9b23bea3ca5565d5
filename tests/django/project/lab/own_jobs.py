"""Jobs of an application of hipq's own on Django's database: in Django's transactions, and in tests by `harness`."""

from __future__ import annotations

from typing import Any

from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from hipq.django.tasks import TaskResultDoesNotExist, task_backends
from hipq.testing import harness
from lab import tasks
from lab.models import Note
from lab.payments import app, charge, receipt


def buy(key: str, amount: int = 5, **more: Any) -> int:
    """As a view does it."""
    with transaction.atomic():
        Note.objects.create(text="order")
        return charge.enqueue({"amount": amount}, key=key, **more)


class NotByItself:
    class Shared(SimpleTestCase):
        """The same in a transaction that is undone, and in real ones. Each test adds the same keys: no other test's are
        there."""

        def test_a_job_from_the_view_to_its_end(self) -> None:
            with harness(app) as world:
                buy("order-1", conn=connection)
                buy("order-2")
                world.run_until_idle(raise_errors=True)
                world.assert_waiting(charge, "order-1")
                world.advance(hours=30)
                world.assert_failed(charge, "order-2", error="TimeoutError")
            self.there_are(["asked for 5", "asked for 5", "order", "order"])

        def test_an_answer_and_what_comes_of_it(self) -> None:
            with harness(app) as world:
                buy("order-1")
                world.run_until_idle(raise_errors=True)
                with transaction.atomic():
                    charge.answer("order-1", "paid")
                    buy("order-2")
                    app.cancel(world.job(charge, "order-2").id)
                world.run_until_idle(raise_errors=True)
                world.assert_ok(charge, "order-1", result="paid")
                world.assert_enqueued(receipt, {"of": "order-1"}, count=1)
                world.assert_failed(charge, "order-2", error="cancelled")
                world.assert_empty()
                self.assertEqual(app.result(world.job(charge, "order-1").id), "paid")

        def test_an_undone_transaction_takes_all_of_it_along(self) -> None:
            with harness(app) as world:
                with transaction.atomic():
                    buy("order-1")
                    buy("order-2", conn=connection)
                    transaction.set_rollback(True)
                world.assert_not_enqueued(charge)
                buy("order-1")
                world.run_until_idle()
                with transaction.atomic():
                    charge.answer("order-1", "paid")
                    transaction.set_rollback(True)
                world.run_until_idle()
                world.assert_waiting(charge, "order-1")

        def there_are(self, wanted: list[str]) -> None:
            self.assertEqual(sorted(one.text for one in Note.objects.all()), wanted)


class InATransaction(NotByItself.Shared, TestCase):
    def test_it_needs_no_harness_to_add_jobs(self) -> None:
        job_id = buy("order-1", conn=connection)
        self.assertEqual(app.job(job_id).key, "order-1")

    def test_its_tasks_are_in_the_transaction_too(self) -> None:
        mine = tasks.add.using(backend="own", queue_name="charges")
        with transaction.atomic():
            kept = mine.enqueue(1)
            self.assertEqual(task_backends["own"].get_result(kept.id).args, [1])
            transaction.set_rollback(True)
        with self.assertRaises(TaskResultDoesNotExist):
            task_backends["own"].get_result(kept.id)

    def test_its_tables_are_made_and_looked_for(self) -> None:
        self.assertEqual(run_checks(databases=["default"]), [])
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE payments_charges")
            cursor.execute("DELETE FROM hipq_queues WHERE app = 'payments'")
        (found,) = run_checks(databases=["default"])
        self.assertIn("TASKS['own']: hipq's tables are not ready in Django's database 'default'", found.msg)
        self.assertIn("charges", found.msg)


class InRealOnes(NotByItself.Shared, TransactionTestCase):
    def tearDown(self) -> None:
        app.close()

    def test_a_worker_works_in_the_test_database(self) -> None:
        if connection.vendor == "sqlite" and connection.is_in_memory_db():
            self.skipTest("no worker finds a database in memory")
        with harness(app):
            pass  # which leaves its queues empty
        job_id = buy("order-1")
        work()
        self.assertEqual(app.job(job_id).phase, "waiting")
        charge.answer("order-1", "paid")
        work()
        self.assertEqual(app.job(job_id).result, "paid")
        self.there_are(["asked for 5", "order"])


def work() -> None:
    call_command("hipq_worker", backend="own", until_empty=True, verbosity=0)
