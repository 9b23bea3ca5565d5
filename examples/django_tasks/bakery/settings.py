"""What Django needs to know. The part about tasks is at the end."""

from __future__ import annotations

from typing import Any

from django import VERSION

SECRET_KEY = "an example has none"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "bakery.db",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},  # several processes write
    }
}
INSTALLED_APPS = ["bakery", "hipq.django"]
if VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")  # what Django 6 has in it

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {name: {"level": "CRITICAL"} for name in ("django.tasks", "django_tasks")},  # `day` says what failed
}
TASKS: dict[str, Any] = {
    "default": {
        "BACKEND": "hipq.django.HipqBackend",
        "QUEUES": ["default", "mails"],
        "OPTIONS": {"database": "default", "retry": {"attempts": 3, "base": 0.2}},
    }
}
