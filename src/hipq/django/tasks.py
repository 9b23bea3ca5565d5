"""Tasks as Django 6 has them, or as the package django-tasks has them for earlier versions: whichever is installed."""

from __future__ import annotations

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskError
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    PACKAGE = "django.tasks"
except ModuleNotFoundError as missing:
    if missing.name not in ("django.tasks", "django.utils.json"):
        raise
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskError
        from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ModuleNotFoundError as other:
        if other.name != "django_tasks":
            raise
        raise ModuleNotFoundError(
            "tasks need Django 6 or, with Django 5.2, its package: pip install 'django-tasks>=0.12'", name=other.name
        ) from None

    PACKAGE = "django_tasks"

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "PACKAGE",
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
