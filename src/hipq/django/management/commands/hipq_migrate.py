"""`manage.py hipq_migrate`: make hipq's tables, wherever the backends have them."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from hipq.django.apps import backends
from hipq.errors import HipqError


class Command(BaseCommand):
    help = (
        "Make hipq's tables, or bring them to this version, for all backends of hipq in TASKS. "
        "For those in one of Django's databases `migrate` does it, too."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", help="Only this one of TASKS.")

    def handle(self, *, backend: str | None, verbosity: int, **_: Any) -> None:
        chosen = [one for one in backends() if backend in (None, one.alias)]
        if not chosen:
            raise CommandError(
                "TASKS has no such backend of hipq; manage.py check says what is wrong with those it has"
            )
        for one in chosen:
            try:
                applied = one.migrate()
            except (HipqError, ImproperlyConfigured) as error:
                raise CommandError(str(error)) from error
            if verbosity:
                self.stdout.write(f"{one.alias}: {', '.join(applied) or 'up to date'}")
