"""LAB_DATABASE is the default of DATABASES, LAB_TASKS is TASKS, both in JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from django import VERSION

SECRET_KEY = "not a secret"
USE_TZ = True
TIME_ZONE = "Europe/Rome"
INSTALLED_APPS = ["hipq.django", "lab", *([] if VERSION >= (6,) else ["django_tasks"])]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES: dict[str, Any] = {
    "default": json.loads(os.environ.get("LAB_DATABASE", '{"ENGINE": "django.db.backends.sqlite3", "NAME": "lab.db"}'))
}
if DATABASES["default"]["ENGINE"].endswith("mysql"):
    import pymysql

    pymysql.install_as_MySQLdb()
TASKS: dict[str, Any] = json.loads(
    os.environ.get("LAB_TASKS", '{"default": {"BACKEND": "hipq.django.HipqBackend", "QUEUES": ["default", "mails"]}}')
)
