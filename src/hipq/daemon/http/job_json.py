"""A job as JSON has it over HTTP: ids as strings, moments in ISO 8601, bytes as text where they are that."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hipq.job.fault import Fault
from hipq.job.model import Brief, Row
from hipq.job.states import NONE
from hipq.job.view import Job
from hipq.job.when import to_datetime

if TYPE_CHECKING:
    from hipq.daemon.jobs import Jobs

JOB: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["id", "type", "key", "state", "phase"],
    "properties": {
        "id": {"type": "string"},
        "type": {"type": "string"},
        "key": {"type": "string"},
        "state": {"type": "string"},
        "phase": {"type": "string"},
        "code": {"type": ["string", "null"]},
        "exitcode": {"type": "integer"},
        "attempt": {"type": "integer"},
        "failures": {"type": "integer"},
        "priority": {"type": "integer"},
        "timeout": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "created": {"type": "string", "format": "date-time"},
        "updated": {"type": "string", "format": "date-time"},
        "error": {"type": "string"},
        "tenant": {"type": "string"},
        "lane": {"type": "string"},
        "time_windows": {"type": "array", "items": {"type": "object"}},
    },
}


TEXT: Final = {"type": "string"}
MOMENT: Final = {"type": "string", "format": "date-time"}
MAYBE_TEXT: Final = {"type": ["string", "null"]}
MAYBE_MOMENT: Final = {"type": ["string", "null"], "format": "date-time"}


def typed(properties: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """An object that has all of these properties, and perhaps those `more` of them."""
    return {"type": "object", "required": [name for name in properties if name not in more], "properties": properties}


WHOLE: Final = {
    "type": "object",
    "required": [*JOB["required"], "then", "history"],
    "properties": {
        **JOB["properties"],
        "payload": TEXT,
        "payload_base64": TEXT,
        "result": MAYBE_TEXT,
        "result_base64": TEXT,
        "deadline": MAYBE_MOMENT,
        "then": MAYBE_TEXT,
        "history": {"type": "array", "items": {
            "type": "object", "required": ["at", "event"], "properties": {"at": MOMENT, "event": TEXT},
        }},
    },
}  # fmt: skip
SEED: Final = typed(
    {"id": TEXT, "type": TEXT, "dt": MOMENT, "lock": TEXT, "data": MAYBE_TEXT, "data_base64": TEXT,
     "create_dt": MOMENT, "done_dt": MAYBE_MOMENT},
    "data_base64",
)  # fmt: skip
AS_IT_IS: Final = typed({"state": TEXT, "phase": TEXT})
"""Of a job that has not ended, or is not stored yet."""
WHY: Final = typed({"reason": TEXT, "sentence": TEXT, "details": {"type": "object"}})
ANSWERED: Final = typed({"answer": TEXT})


def brief(row: Brief) -> dict[str, Any]:
    """What fits in a list: not what it carries, nor what became of that."""
    return {
        "id": str(row.id),
        "type": row.job_type,
        "key": row.job_key,
        "state": row.state,
        "phase": row.phase,
        "code": None if row.code == NONE else row.code,
        "exitcode": row.exitcode,
        "attempt": row.attempt,
        "failures": row.failures,
        "priority": row.priority,
        "timeout": row.timeout,
        "at": to_datetime(row.scheduled_run_time),
        "created": to_datetime(row.create_time),
        "updated": to_datetime(row.update_time),
        "error": NONE if row.error == NONE else str(Fault.load(row.error)),
        "tenant": row.tenant,
        "lane": row.lane,
        "time_windows": Job[Any](row).time_windows,
    }


def whole(row: Row, jobs: Jobs) -> dict[str, Any]:
    job = Job[Any](row)
    return {
        **brief(row),
        **in_json("payload", jobs.payload(row)),
        **in_json("result", jobs.result(row) if row.result else None),
        "deadline": to_datetime(row.deadline) if row.deadline else None,
        "then": job.then,
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
