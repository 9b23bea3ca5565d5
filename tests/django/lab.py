"""The project in `project/`, driven from outside: each command is a process of its own, as for a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from hipq import Hipq
from tests import processes

PROJECT: Final = Path(__file__).parent / "project"
PATIENCE: Final = 300.0
"""Seconds until something has failed, on a machine however busy; it takes some."""
PRELUDE: Final = """
import time, django
django.setup()
from django.core.management import call_command
from django.db import transaction
from lab import tasks
from lab.models import Note
"""
MIGRATED: Final = 'call_command("migrate", verbosity=0)\n'


def sqlite(file: Path | str, **more: Any) -> dict[str, Any]:
    """As Django's documentation wants it for several writers."""
    options = {"transaction_mode": "IMMEDIATE", "timeout": 60}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": options, **more}


def postgres(url: str, **more: Any) -> dict[str, Any]:
    parts = urlsplit(url)
    found = {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path.lstrip("/"), "HOST": parts.hostname,
             "PORT": str(parts.port or ""), "USER": unquote(parts.username or ""),
             "PASSWORD": unquote(parts.password or "")}  # fmt: skip
    return {**found, **more}


def mysql(url: str, **more: Any) -> dict[str, Any]:
    return {**postgres(url, **more), "ENGINE": "django.db.backends.mysql"}


class Lab:
    def __init__(
        self,
        folder: Path,
        database: dict[str, Any],
        url: str = "",
        *,
        python: str = sys.executable,
        backend: dict[str, Any] | None = None,
    ) -> None:
        self.folder, self._python = folder, python
        self._is_migrated = False
        self._url = url or f"sqlite:///{database['NAME']}"
        ours = {"BACKEND": "hipq.django.HipqBackend", "QUEUES": ["default", "mails"]}
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("HIPQ_")} | {
            "LAB_DATABASE": json.dumps(database),
            "LAB_TASKS": json.dumps({"default": ours | (backend or {})}),
            "DJANGO_SETTINGS_MODULE": "lab.settings",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH")))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def manage(self, *arguments: str, status: int = 0) -> str:
        """Run `manage.py` to its end; what it printed."""
        return self._run(str(PROJECT / "lab_manage.py"), *arguments, status=status)

    def do(self, code: str) -> Any:
        """Run this in a process of its own, on a database that has its tables; what it puts into `out`."""
        first, self._is_migrated = "" if self._is_migrated else MIGRATED, True
        program = f"{PRELUDE}{first}{code}\nimport json; print(json.dumps(out))"
        return json.loads(self._run("-c", program).splitlines()[-1])

    def _run(self, *arguments: str, status: int = 0) -> str:
        done = processes.run([self._python, *arguments], cwd=self.folder, env=self._environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Python with these arguments, under way; killed at the end, if it has not ended by itself."""
        with (self.folder / f"said-{time.monotonic_ns()}").open("w") as said:
            process = processes.Popen([self._python, *arguments], cwd=self.folder, env=self._environment, text=True,
                                       stdout=said, stderr=said)  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    @contextmanager
    def jobs(self) -> Iterator[Hipq]:
        """What is in the queues, without Django."""
        app = Hipq("django_tasks", self._url)
        app.known("default")
        try:
            yield app
        finally:
            app.close()

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with self.started(str(PROJECT / "lab_manage.py"), "hipq_worker", *arguments) as process:
            yield process

    def said(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("said-*")))

    def until(self, condition: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)
        return found
