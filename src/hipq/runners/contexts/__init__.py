"""Contexts: processes in which handlers of strangers run, in several languages."""

from hipq.runners.contexts.context import Context
from hipq.runners.contexts.handler import Handler, Report, Task, check
from hipq.runners.contexts.pool import Contexts
from hipq.runners.contexts.settings import Settings, languages

__all__ = ["Context", "Contexts", "Handler", "Report", "Settings", "Task", "check", "languages"]
