"""Contexts: processes in which handlers of strangers run, in several languages."""

from hipq.sandbox.context import Context
from hipq.sandbox.handler import Handler, Report, Task, check
from hipq.sandbox.pool import Contexts
from hipq.sandbox.settings import Settings, languages

__all__ = ["Context", "Contexts", "Handler", "Report", "Settings", "Task", "check", "languages"]
