"""`manage.py day`: a day in the bakery."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any, Final

from django.core.management.base import BaseCommand
from django.db import transaction

from bakery.models import Order
from bakery.tasks import bake

ORDERS: Final = [("Anna", 2), ("Bruno", 3), ("Carla", 500), ("Dario", 1)]
CLOSING_TIME: Final = 60.0


class CardRefused(Exception):
    pass


def place(customer: str, loaves: int) -> Any:
    """An order and the task for it are stored together, or not at all."""
    with transaction.atomic():
        order = Order.objects.create(customer=customer, loaves=loaves)
        result = bake.using(priority=50 if customer == "Dario" else 0).enqueue(order.pk)
        order.baking = result.id
        order.save()
        if customer == "Dario":
            raise CardRefused
    return result


class Command(BaseCommand):
    help = "Orders come in, a worker bakes."

    def handle(self, **_: Any) -> None:
        results = {}
        for customer, loaves in ORDERS:
            try:
                results[customer] = place(customer, loaves)
                self.stdout.write(f"{customer} orders {loaves}")
            except CardRefused:
                self.stdout.write(f"{customer} orders {loaves}, but the card is refused: no order, and no task")
        worker = subprocess.Popen([sys.executable, sys.argv[0], "hipq_worker", "--verbosity", "0"])
        try:
            until = time.monotonic() + CLOSING_TIME
            while not all(result.is_finished for result in results.values()) and time.monotonic() < until:
                time.sleep(0.1)
                for result in results.values():
                    result.refresh()
        finally:
            worker.terminate()  # it lets running tasks finish
            worker.wait()
        for customer, result in results.items():
            self.stdout.write(f"{customer}: {self.became(result)}")

    def became(self, result: Any) -> str:
        if result.is_finished and not result.errors:
            return f"{result.return_value} loaves are baked"
        last = result.errors[-1].exception_class_path.rpartition(".")[2] if result.errors else "nothing"
        if result.status == "SUCCESSFUL":
            return f"{result.return_value} loaves are baked, at attempt {result.attempts}, after a {last}"
        return f"{result.status.lower()} after {result.attempts} attempts: {last}"
