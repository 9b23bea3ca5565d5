"""The page of the Python API: signatures and docstrings, as help() shows them, with a table of options where a function
takes some by name."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from hipq.in_thread import awaitable

PARTS: Final[dict[str, dict[str, list[str]]]] = {
    "An instance, its queues and job types": {"hipq": ["Hipq", "Queue", "JobType", "JobId", "Job"]},
    "What handlers return, and what they are given": {
        "hipq": ["Ok", "Failed", "Retry", "Wait", "Progress", "Answer", "Answered", "Fault", "Why"]
    },
    "Verbs by subject": {
        "hipq.jobs": ["Jobs"], "hipq.rules": ["QueueRules"], "hipq.cron": ["CronSchedules"],
        "hipq.answers.inbox": ["Inbox"], "hipq.streams": ["Streams"],
    },
    "Retries": {"hipq": ["backoff", "fixed", "schedule"]},
    "Limits, order and windows": {
        "hipq": ["limit", "per_lane", "share", "rate", "window", "aged", "admit", "defer", "reject"]
    },
    "Errors": {
        "hipq": ["HipqError", "Invalid", "NotFound", "Conflict", "DuplicateKey", "NameClash", "JobFailed",
                 "SchemaError", "StoreError", "StoreBroken", "StoreUnavailable", "ServiceError"]
    },
    "Sending and being called back": {"hipq.transports": ["send", "Message", "Reply"], "hipq": ["callbacks"]},
    "Middleware": {
        "hipq": ["Middleware"],
        "hipq.middleware": ["Enqueue", "JobScope", "DjangoConnections", "SentryScope", "StructlogContext"],
    },
    "Logs, metrics and traces": {
        "hipq.observe.logs": ["JobFilter", "structlog_fields"], "hipq.observe.counts": ["Counts"],
        "hipq.observe.prometheus": ["Collector"], "hipq.observe.meters": ["meter"], "hipq.observe.traces": ["trace"],
    },
    "Tests": {"hipq.testing": ["harness", "Harness", "HandClock", "Ran", "Reply", "Sent"]},
    "The dashboard": {"hipq.dashboard": ["asgi", "Visitor", "Role"]},
    "The client of a daemon": {"hipq.client": ["Client", "AsyncClient", "Result"]},
    "The waiter": {"hipq.waiter": ["Waiter", "Message", "Sent", "Scheduled", "Polled"]},
    "Celery": {"hipq.celery": ["install", "uninstall", "cancel"]},
}  # fmt: skip
"""What users import, by subject. Django's backends are configured, not called: docs/django.md has their options."""
INTERNAL: Final = {
    "Hipq": {"added", "engine", "known", "signer", "store"},
    "Queue": {"add_schedule", "arrived", "chained", "find_type", "for_engine", "is_known", "job_type", "keeping",
              "known", "learn", "leave", "look_again", "number", "recall", "rules", "spec"},
    "JobType": {"adding", "queue", "spec"},
    "JobId": {"of"},
    "Fault": {"dump", "load", "of", "told"},
    "Jobs": {"find", "operator", "progress", "row"},
    "QueueRules": {"set_paused"},
    "Inbox": {"deliver", "deliver_inserted"},
    "Streams": {"listening"},
}  # fmt: skip
"""Members that other parts of hipq use, and users need not know of."""
VERBS: Final = {
    "Jobs": "app.jobs",
    "QueueRules": "app.rules",
    "CronSchedules": "app.cron",
    "Inbox": "app.answers",
    "Streams": "app.streams",
}
"""Classes that users meet as a property of their instance."""
OPTIONS: Final = {
    "TypeOptions": "hipq.job.type_options", "TickOptions": "hipq.job.options", "JobOptions": "hipq.job.options",
    "Reading": "hipq.streams", "JobFilters": "hipq.jobs",
}  # fmt: skip
"""Options that functions take by name (`**options`), and the module that says what each means."""
NOT_MADE: Final = {
    "Queue", "JobType", "JobId", "Job", "Jobs", "QueueRules", "CronSchedules", "Inbox", "Streams", "Answer", "Why",
}  # fmt: skip
"""Classes whose objects users are given, and do not make."""
_HEAD: Final = """# Python API

This page is made from the code: every name that is meant for you, its signature, and its docstring. `help(hipq.Hipq)`
shows the same. Ranges and defaults of numbers are on [another page](reference.md), and the guides say when to use what.
"""


def page() -> str:
    parts = []
    for title, modules in PARTS.items():
        parts.append(f"\n## {title}\n")
        for module, names in modules.items():
            parts.extend(_entry(module, name) for name in names)
    return _HEAD + "".join(parts)


def _entry(module: str, name: str) -> str:
    found = getattr(import_module(module), name)
    text = f"\n### `{VERBS.get(name, f'{module}.{name}')}`\n\n{_said(found, name)}"
    if inspect.isclass(found):
        text += _properties(found)
        for one, member in members(found).items():
            text += f"\n#### `{VERBS.get(name, name)}.{one}`\n\n{_said(member, one)}"
    return text


def _own(found: type) -> dict[str, Any]:
    """What a class and its bases in hipq define for users, in the order in which it was written."""
    own: dict[str, Any] = {}
    for one in reversed(found.__mro__):
        if one.__module__.startswith("hipq") and (one is found or one.__name__ not in _names()):
            own |= {name: value for name, value in vars(one).items() if not name.startswith("_")}
    return {name: value for name, value in own.items() if name not in INTERNAL.get(found.__name__, set())}


def _names() -> set[str]:
    return {name for part in PARTS.values() for names in part.values() for name in names}


def members(found: type) -> dict[str, Any]:
    """The methods of a class, by name; also those that are another one for async code."""
    named = {name: getattr(value, "__func__", value) for name, value in _own(found).items()}
    return {name: inspect.unwrap(one) for name, one in named.items() if callable(one) and not isinstance(one, type)}


def _properties(found: type) -> str:
    """What is read of an object, and its methods for async code that are another one in a thread."""
    own = _own(found)
    rows = {name: _about(one) for name, one in own.items() if isinstance(one, property)}
    lines = [f"- `{name}`: {about}\n" for name, about in rows.items() if about]
    brief = [f"`{name}`" for name, about in rows.items() if not about]
    text = "\nProperties:\n\n" + "".join(lines) if rows else ""
    text += f"- {'and ' if lines else ''}{', '.join(brief)}.\n" if brief else ""
    twins = [f"`{name}`" for name, one in own.items() if isinstance(one, awaitable)]
    return text + (f"\nFor async code, each the method without the `a`: {', '.join(twins)}.\n" if twins else "")


def _about(one: property) -> str:
    return "" if isinstance(one.fget, attrgetter) else " ".join(inspect.cleandoc(one.__doc__ or "").split())


def _said(found: Any, name: str) -> str:
    """The signature and the docstring, and a table of the options that are taken by name."""
    said = inspect.cleandoc(found.__doc__ or "")
    if inspect.isclass(found) and issubclass(found, Enum):
        return f"{said}\n\nOne of {', '.join(f'`{one.value}`' for one in found)}.\n"
    if inspect.isclass(found) and re.match(rf"{name}\(", said):  # what a tuple or a struct says of itself
        said = ""
    text = "" if name in NOT_MADE else f"```python\n{_signature(found, name)}\n```\n\n"
    text += f"{_listed(said)}\n" if said else ""
    for options in taken(found):
        rows = "".join(f"| `{option}` | {about} |\n" for option, about in described(options).items())
        text += f"\n| option | |\n|---|---|\n{rows}"
    return text


def _listed(said: str) -> str:
    """Markdown takes a list for a part of the paragraph that it follows."""
    return re.sub(r"(?<=[^\n])\n(?=- )", "\n\n", said)


def _signature(found: Any, name: str) -> str:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return name
    parts = list(_parameters(signature))
    returns = "" if inspect.isclass(found) else f" -> {_type(signature.return_annotation)}"
    short = f"{name}({', '.join(parts)}){returns}"
    return short if len(short) <= 100 else f"{name}(\n    {f',{chr(10)}    '.join(parts)},\n){returns}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """As they are written, with the star before those that are given by name only."""
    seen = False
    for one in signature.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not seen:
            yield "*"
        seen = seen or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        typed = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
        default = "" if one.default is one.empty else f" = {_value(one.default)}"
        yield f"{stars}{one.name}{typed}{default}"


def _type(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return "None"
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _value(default: Any) -> str:
    """What a default is; "..." for one that has no way of being written."""
    text = repr(default)
    return "..." if "<" in text or "UNSET" in text else text.replace("'", '"')


def taken(found: Any) -> list[str]:
    """The names of the options that a function takes as `**options: Unpack[...]`, or spells out, as `enqueue` does."""
    annotations = {} if inspect.isclass(found) else getattr(found, "__annotations__", {})
    if {"at", "delay", "windows"} <= annotations.keys():
        return ["JobOptions"]
    named = re.findall(r"Unpack\[(\w+)\]", " ".join(str(one) for one in annotations.values()))
    return [one for one in named if one in OPTIONS]


def described(options: str) -> dict[str, str]:
    """The fields of a TypedDict, its bases' too, with what stands under each in the code."""
    module = import_module(OPTIONS[options])
    tree = ast.parse(Path(str(module.__file__)).read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    node, found = classes[options], dict[str, str]()
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            found |= described(base.id)
    for field, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            found[field.target.id] = " ".join(str(said).split()).replace("|", "\\|")
    return found


def described_parameters(found: Any) -> tuple[set[str], set[str]]:
    """The names of a function's parameters and options, and those of them that its part of the page explains."""
    names = {name for name, one in inspect.signature(found).parameters.items() if one.kind is not one.VAR_KEYWORD}
    about = {name: said for options in taken(found) for name, said in described(options).items()}
    said = set(re.findall(r"`(?:\w+=)?(\w+)", found.__doc__ or "")) | {name for name, text in about.items() if text}
    return (names | set(about)) - {"self", "cls"}, said
