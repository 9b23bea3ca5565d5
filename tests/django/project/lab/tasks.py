"""Tasks of all kinds."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from hipq import Failed, Retry
from hipq.django.tasks import PACKAGE

if PACKAGE == "django.tasks":
    from django.tasks import task
else:
    from django_tasks import task

from lab.models import Note

tried: list[int] = []


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@task
def note(text: str) -> int:
    return int(Note.objects.create(text=text).pk)


@task(queue_name="mails")
def mail() -> str:
    return "sent"


@task
def divide(a: int) -> float:
    return 1 / a


@task
def bad_value() -> Any:
    return object()


@task
async def add_later(a: int, b: int) -> int:
    found = await Note.objects.acreate(text="async")
    assert found.pk
    return a + b


@task(takes_context=True)
def about(context: Any, word: str) -> list[Any]:
    result = context.task_result
    return [word, context.attempt, result.id, result.status, len(result.worker_ids)]


@task(takes_context=True)
def third_time(context: Any) -> int:
    if context.attempt < 3:
        raise ConnectionError(f"not at attempt {context.attempt}")
    return int(context.attempt)


@task
def refuse() -> None:
    raise Failed("no such customer")


@task(takes_context=True)
def ask_again(context: Any) -> str:
    if context.attempt == 1:
        raise Retry(0)
    return "at last"


@task
def fail_after_writing() -> None:
    """A transaction of its own that is undone, in a thread that goes on."""
    Note.objects.create(text="before")
    raise RuntimeError("after")


@task
def chain(text: str) -> str:
    """Adds a task from inside one."""
    return str(note.enqueue(text).id)


@task
def linger(folder: str, seconds: float) -> int:
    """Says that it began and, if nobody kills it, that it ended."""
    began = Path(folder, f"began-{time.monotonic_ns()}-{threading.get_ident()}")
    began.write_text(str(os.getpid()))
    until = time.monotonic() + seconds
    while time.monotonic() < until and not Path(folder, "go").exists():
        time.sleep(0.02)
    return os.getpid()


@task(takes_context=True)
def note_attempts(context: Any, good_at: int) -> None:
    """Says each time that it was tried; good at this attempt."""
    Note.objects.create(text=f"attempt {context.attempt}")
    if context.attempt < good_at:
        raise ConnectionError("not yet")
