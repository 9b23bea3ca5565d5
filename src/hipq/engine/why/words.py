"""Engines, errors and histories in the words of the sentences that `why` makes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from hipq.job import states
from hipq.job.fault import Fault, clean
from hipq.job.history import entries_of
from hipq.job.model import Row, queue_of
from hipq.stores.claims import ANY_TYPE
from hipq.stores.values import EngineSeen

_LINK: Final = re.compile(r"^\s*For further information visit https://\S+$", re.MULTILINE)
NAMED: Final = 3
"""The most jobs or engines that one sentence names."""


def some(noun: str, names: Sequence[str]) -> str:
    """job 7; jobs 7, 8, 9 and others."""
    named = ", ".join(names[:NAMED]) + (" and others" if len(names) > NAMED else "")
    return f"{noun} {named}" if len(names) == 1 else f"{noun}s {named}"


def engines_text(engines: Sequence[EngineSeen]) -> str:
    return some("engine", [f"{one.engine_id} ({one.label})" for one in engines])


def listed(engines: Sequence[EngineSeen]) -> list[dict[str, Any]]:
    return [{"engine_id": one.engine_id, "label": one.label} for one in engines]


def serving(row: Row, engines: Sequence[EngineSeen]) -> list[EngineSeen]:
    """The engines that have the code of this job."""
    queue = str(queue_of(row.id))
    return [one for one in engines if {row.job_type, ANY_TYPE} & set(one.serves.get(queue, ()))]


def none_serving(row: Row, engines: Sequence[EngineSeen]) -> str:
    if not engines:
        return "no engine is alive"
    wanted = f"has the code of {row.job_type}" if _on_queue(row, engines) else "works on its queue"
    return f"no engine that {wanted} is alive, only {engines_text(engines)}"


def noticed(row: Row, engines: Sequence[EngineSeen]) -> str:
    """Whether an engine will notice that a time is up: any engine of the queue does, with or without the job's code."""
    return "an engine will notice that soon" if _on_queue(row, engines) else "no engine of its queue is there to notice"


def _on_queue(row: Row, engines: Sequence[EngineSeen]) -> bool:
    return any(str(queue_of(row.id)) in one.serves for one in engines)


def fault(row: Row) -> str | None:
    """The job's error on one line; None if it has none."""
    return None if row.error == states.NONE else on_one_line(Fault.load(row.error))


def on_one_line(text: object) -> str:
    """The text without the links that Pydantic's errors have, one for each field."""
    return clean(" ".join(_LINK.sub("", str(text)).split()), 300)


def history(row: Row) -> list[dict[str, Any]]:
    return entries_of(row.history)
