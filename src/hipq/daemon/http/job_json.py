"""A job as JSON has it over HTTP: ids as strings, moments in ISO 8601, bytes as text where they are that."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from hipq.job.fault import Fault
from hipq.job.meta import to_show
from hipq.job.model import Brief, Row
from hipq.job.states import NONE
from hipq.job.view import Job
from hipq.job.when import to_datetime

if TYPE_CHECKING:
    from hipq.daemon.jobs import Jobs

Schema = Mapping[str, Any]

TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "integer"}
MOMENT: Final = {"type": "string", "format": "date-time"}
MAYBE_TEXT: Final = {"type": ["string", "null"]}
MAYBE_MOMENT: Final = {"type": ["string", "null"], "format": "date-time"}


def typed(properties: Schema, *more: str) -> dict[str, Any]:
    """An object that has all of these properties, and perhaps those `more` of them."""
    return {"type": "object", "required": [name for name in properties if name not in more], "properties": properties}


def named(name: str, schema: Schema) -> dict[str, Any]:
    """A schema with a name of its own in the description, where whatever has it refers to it."""
    return {"title": name, **schema}


def array(items: Schema) -> dict[str, Any]:
    return {"type": "array", "items": items}


_BRIEF: Final[Mapping[str, tuple[Schema, Callable[[Brief], Any]]]] = {
    "id": (TEXT, lambda row: str(row.id)),
    "type": (TEXT, attrgetter("job_type")),
    "key": (TEXT, attrgetter("job_key")),
    "state": (TEXT, attrgetter("state")),
    "phase": (TEXT, attrgetter("phase")),
    "code": (MAYBE_TEXT, lambda row: None if row.code == NONE else row.code),
    "exitcode": (NUMBER, attrgetter("exitcode")),
    "attempt": (NUMBER, attrgetter("attempt")),
    "failures": (NUMBER, attrgetter("failures")),
    "priority": (NUMBER, attrgetter("priority")),
    "timeout": ({"type": "number"}, attrgetter("timeout")),
    "at": (MOMENT, lambda row: to_datetime(row.scheduled_run_time)),
    "created": (MOMENT, lambda row: to_datetime(row.create_time)),
    "updated": (MOMENT, lambda row: to_datetime(row.update_time)),
    "error": (TEXT, lambda row: NONE if row.error == NONE else str(Fault.load(row.error))),
    "tenant": (TEXT, attrgetter("tenant")),
    "lane": (TEXT, attrgetter("lane")),
    "time_windows": (array({"type": "object"}), lambda row: Job[Any](row).time_windows),
}
"""What a list says of a job: the schema of each property, and where it is in a row."""
JOB: Final = named("Job", typed({name: schema for name, (schema, _) in _BRIEF.items()}))
WHOLE: Final = named("WholeJob", typed(
    {**JOB["properties"], "payload": TEXT, "payload_base64": TEXT, "result": MAYBE_TEXT, "result_base64": TEXT,
     "deadline": MAYBE_MOMENT, "then": MAYBE_TEXT, "parent": MAYBE_TEXT,
     "history": array(typed({"at": MOMENT, "event": TEXT}))},
    "payload", "payload_base64", "result", "result_base64",
))  # fmt: skip
SEED: Final = named("SeedJob", typed(
    {"id": TEXT, "type": TEXT, "dt": MOMENT, "lock": TEXT, "data": MAYBE_TEXT, "data_base64": TEXT,
     "create_dt": MOMENT, "done_dt": MAYBE_MOMENT},
    "data_base64",
))  # fmt: skip
AS_IT_IS: Final = named("Accepted", typed({"state": TEXT, "phase": TEXT}))
"""What is said of a job that has not ended, or is not stored yet."""


def brief(row: Brief) -> dict[str, Any]:
    """A job as a list has it: without its payload and its result."""
    return {name: get(row) for name, (_, get) in _BRIEF.items()}


def whole(row: Row, jobs: Jobs) -> dict[str, Any]:
    job = Job[Any](row)
    return {
        **brief(row),
        **in_json("payload", jobs.payload(row)),
        **in_json("result", jobs.result(row) if row.result else None),
        "deadline": to_datetime(row.deadline) if row.deadline else None,
        "then": job.then,
        "parent": str(parent) if (parent := to_show(row.meta).parent) else None,
        "history": job.history,
    }


def in_json(name: str, data: bytes | None) -> dict[str, Any]:
    """Bytes under this name if they are text; else in base64, and the name says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
