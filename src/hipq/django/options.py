"""The `OPTIONS` of a backend, checked when the backend is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.utils.module_loading import import_string

from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.retries import RetryHandler, backoff
from hipq.job.when import seconds

NAME: Final = "django_tasks"
"""The default name of the instance that a backend's queues belong to, and the prefix of its tables."""
_PLACES: Final = ("app", "database", "url")
_KNOWN: Final = (*_PLACES, "name", "retry", "timeout", "run_timeout")


@dataclass(frozen=True)
class BackendOptions:
    app: str = ""
    database: str = ""
    url: str = ""
    name: str = NAME
    retry: RetryHandler | None = None
    timeout: float = 86_400.0
    run_timeout: float | None = None


def options_of(given: Mapping[str, Any]) -> BackendOptions:
    if unknown := given.keys() - set(_KNOWN):
        raise Invalid(f"OPTIONS has {', '.join(sorted(map(str, unknown)))}; there are {', '.join(_KNOWN)}")
    chosen = [name for name in _PLACES if given.get(name)]
    if len(chosen) > 1:
        raise Invalid(f"OPTIONS says {' and '.join(chosen)}: give one of them, jobs are in one place")
    if "app" in chosen and "name" in given:
        raise Invalid("OPTIONS says app and name: the application has a name already")
    for name in (*chosen, *(["name"] if "name" in given else [])):
        if not isinstance(given[name], str):
            raise Invalid(f"OPTIONS[{name!r}] must be a text, not {shown(given[name])}")
    run_timeout = given.get("run_timeout")
    return BackendOptions(
        app=given.get("app") or "",
        database=given.get("database") or ("" if chosen else "default"),
        url=given.get("url") or "",
        name=names.name(given.get("name", NAME), "OPTIONS['name']"),
        retry=_policy(given.get("retry")),
        timeout=seconds(given.get("timeout", 86_400.0), "OPTIONS['timeout']", least=0.001),
        run_timeout=None if run_timeout is None else seconds(run_timeout, "OPTIONS['run_timeout']", least=0.001),
    )


def _policy(given: Any) -> RetryHandler | None:
    """The retry policy. None: an error is final. Otherwise arguments of `backoff`, a policy, or the import path of
    one."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        try:
            return backoff(**given)
        except TypeError as error:
            raise Invalid(f"OPTIONS['retry'] must have arguments of hipq.backoff: {error}") from None
    if isinstance(given, str):
        try:
            given = import_string(given)
        except ImportError as error:
            raise Invalid(f"OPTIONS['retry'] cannot be imported: {error}") from None
    if not callable(given):
        raise Invalid(f"OPTIONS['retry'] must be arguments of hipq.backoff or a policy, not {shown(given)}")
    policy: RetryHandler = given
    return policy
