"""The same with a backend for an application of hipq's own, on the same database."""

from __future__ import annotations

from typing import Any

from lab import settings
from lab.settings import *  # noqa: F403

own = {"BACKEND": "hipq.django.HipqBackend", "QUEUES": ["charges"], "OPTIONS": {"app": "lab.payments:app"}}
TASKS: dict[str, Any] = {**settings.TASKS, "own": own}
