"""Contexts: processes that run other people's handlers, in several languages."""

from hipq.sandbox.handler import ContextJob, Handler, JobReport, check
from hipq.sandbox.interpreters import languages
from hipq.sandbox.pool import ContextPool
from hipq.sandbox.settings import ContextSettings

__all__ = ["ContextJob", "ContextPool", "ContextSettings", "Handler", "JobReport", "check", "languages"]
