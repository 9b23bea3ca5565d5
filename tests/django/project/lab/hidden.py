"""Tasks in a module that nothing imports: a worker finds them by the names of their jobs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from hipq.django.tasks import PACKAGE

if PACKAGE == "django.tasks":
    from django.tasks import task
else:
    from django_tasks import task


@task
def found(folder: str) -> int:
    Path(folder, "found").touch()
    return os.getpid()


@task(takes_context=True)
def kill_its_process(context: Any) -> int:
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()
