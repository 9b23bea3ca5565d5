"""Jobs on a terminal, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from hipq import Job
from hipq.observe.logs import escaped

_BRIEF = ("id", "queue", "type", "key", "state", "phase", "code", "attempt", "scheduled_run_time")
_FIELDS = (
    "id", "type", "key", "state", "phase", "attempt", "failures", "crashes", "code", "exitcode", "priority",
    "throttle_factor", "timeout", "scheduled_run_time", "deadline", "create_time", "update_time", "owner",
)  # fmt: skip


def described(app: str, queue: str, job: Job[Any]) -> dict[str, Any]:
    """A job as JSON can have it, whole."""
    fault = job.fault
    return {
        "app": app,
        "queue": queue,
        **{name: getattr(job, name) for name in _FIELDS},
        "error": str(fault) if fault else None,
        "data": job.data,
        "result": job.result,
        "history": job.history,
    }


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, default=_plain))  # ASCII: what is in a payload cannot play tricks on a terminal


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def clock(value: datetime) -> str:
    return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return clock(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = escaped(str("" if value is None else value))
    return text if len(text) <= 60 else text[:59] + "…"


def print_table(columns: Sequence[str], rows: Sequence[dict[str, Any]], indent: str = "") -> None:
    cells = [[name.replace("_", " ") for name in columns], *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        click.echo(indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_lines(values: dict[str, Any]) -> None:
    """Names and values, one a line, whole; None is left out."""
    for name, value in values.items():
        if value is not None:
            click.echo(f"{name:<19}{escaped(str(value))}")


def print_jobs(jobs: Sequence[dict[str, Any]]) -> None:
    print_table(_BRIEF, jobs)


def print_job(job: dict[str, Any]) -> None:
    """A job and what happened to it, line by line."""
    for name in ("app", "queue", *_FIELDS):
        if job[name] not in (None, ""):
            click.echo(f"{name.replace('_', ' '):<19}{_cell(job[name])}")
    for name in ("data", "result", "error"):
        if job[name] is not None:
            text = job[name] if name == "error" else json.dumps(job[name])
            click.echo(f"{name:<19}{escaped(text)}")
    click.echo("history")
    for at, text in timeline(job):
        click.echo(f"  {clock(at)}  {text}")
    if job.get("answers"):
        click.echo("answers")
        print_table(("number", "state", "arrived", "id"), job["answers"], "  ")
    if job.get("more_answers"):
        click.echo(f"  and more: hipq answers list --job {job['id']}")


def timeline(job: dict[str, Any]) -> list[tuple[datetime, str]]:
    found = [(job["create_time"], "added")]
    for entry in job["history"]:
        details = " ".join(f"{k}={v}" for k, v in entry.items() if k not in ("at", "event", "scheduled"))
        found.append((entry["at"], escaped(f"{entry['event']} {details}".strip())))
    return found
