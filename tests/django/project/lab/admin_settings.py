"""The same with Django's admin, and, where LAB_URL names one, a second backend whose jobs are elsewhere."""

from __future__ import annotations

import os
from typing import Any

from lab import settings
from lab.settings import *  # noqa: F403

INSTALLED_APPS: list[str] = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "django.contrib.staticfiles", *settings.INSTALLED_APPS,
]  # fmt: skip
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware", "django.contrib.messages.middleware.MessageMiddleware",
]  # fmt: skip
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages"]},
}]  # fmt: skip
ROOT_URLCONF = "lab.admin_urls"
STATIC_URL = "/static/"
ALLOWED_HOSTS = ["*"]
DEBUG = bool(os.environ.get("LAB_DEBUG"))
if os.environ.get("LAB_URL"):
    apart = {"BACKEND": "hipq.django.HipqBackend", "QUEUES": ["mails"], "OPTIONS": {"url": os.environ["LAB_URL"]}}
    TASKS: dict[str, Any] = {**settings.TASKS, "apart": apart}
