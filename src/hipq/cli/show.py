"""What commands print: JSON, lines and tables; jobs on a terminal; and the command for the next page."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from hipq import Job
from hipq.cli.commands import asked
from hipq.cli.complain import is_terminal, note
from hipq.cli.table import laid_out, text_of
from hipq.job.event_names import JobEvent
from hipq.job.progress import in_words as progress_in_words
from hipq.job.retries import in_words
from hipq.job.states import NONE
from hipq.job.windows import describe
from hipq.observe.logs import escaped
from hipq.stores.password import without_password

GIVEN: Final = "hipq.given"
"""Where a command's context keeps the words it was given."""

_FIELDS = (
    "id", "type", "key", "wait_key", "state", "phase", "attempt", "failures", "crashes", "code", "exitcode", "priority",
    "throttle_factor", "timeout", "scheduled_run_time", "deadline", "create_time", "update_time", "owner",
    "time_windows", "lane", "tenant",
)  # fmt: skip


def outlined(app: str, queue: str, job: Job[Any]) -> dict[str, Any]:
    """A job as a table can have it: what it carries is not read."""
    fault = job.fault
    return {
        "app": app,
        "queue": queue,
        **{name: getattr(job, name) for name in _FIELDS},
        "error": str(fault) if fault else NONE,
    }


def described(app: str, queue: str, job: Job[Any]) -> dict[str, Any]:
    """A job as JSON can have it, whole."""
    return {
        **outlined(app, queue, job),
        "retry": job.retry,
        "then": job.then,
        "traceparent": job.traceparent,
        "data": _read(lambda: job.data),
        "result": _read(lambda: job.result),
        "history": [{"at": job.create_time, "event": JobEvent.ADDED}, *job.history],
    }


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except msgspec.DecodeError as error:
        return f"(another program wrote what cannot be read here: {error})"


def say(value: Any, text: str | Callable[[], None]) -> None:
    """What a command came to: the value with --json; else the text, or what prints it for people."""
    if asked("json"):
        print_json(value)
    elif callable(text):
        text()
    else:
        click.echo(text)


def say_table(rows: Sequence[dict[str, Any]], *columns: str, none: str = "", spare: Sequence[str] = ()) -> None:
    """Rows, whole with --json; else these columns of them as a table."""
    say(rows, lambda: print_table(columns, rows, none=none, spare=spare))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, default=_plain))  # ASCII: what is in a payload cannot play tricks on a terminal


def print_json_list(values: Iterable[Any]) -> None:
    """The same of a list whose elements are made one by one: all of them might not fit into memory."""
    click.echo("[", nl=False)
    for number, value in enumerate(values):
        click.echo(f"{', ' if number else ''}{json.dumps(value, default=_plain)}", nl=False)
    click.echo("]")


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def clock(value: datetime) -> str:
    """A time where milliseconds matter: in a history."""
    return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"


def print_table(
    columns: Sequence[str],
    rows: Sequence[dict[str, Any]],
    indent: str = "",
    *,
    none: str = "",
    spare: Sequence[str] = (),
) -> None:
    """A table as wide as the terminal has room; whole, if it goes elsewhere. `none`: what there is none of, said on
    standard error. `spare`: columns that go first where there is no room."""
    if none and not rows:
        note(f"no {none} found")
        return
    width = shutil.get_terminal_size().columns - len(indent) if is_terminal(sys.stdout) else None
    for line in laid_out(columns, rows, width, spare):
        click.echo(f"{indent}{line}".rstrip())


def next_page(after: int | str) -> None:
    """Say on standard error how to see what comes after this page: the command that was given, with another --after.
    For a command of class AppCommand that found more than it shows."""
    context = click.get_current_context()
    given = without_option(context.meta.get(GIVEN, []), "--after")
    more = ["--after", str(after)]
    words = [*more, *given] if "--" in given else [*given, *more]  # behind -- nothing is an option
    line = shlex.join([*context.command_path.split(), *without_passwords(words)])
    note(f"there is more: {escaped(line)}")


def without_passwords(words: Sequence[str]) -> list[str]:
    """A command line's words; those of them that name a database without its password."""
    found: list[str] = []
    for word in words:
        option, is_one, value = word.partition("=") if word.startswith("--db=") else ("", "", word)
        is_db = is_one or (found and found[-1] == "--db")
        found.append(option + is_one + without_password(value) if is_db else word)
    return found


def without_option(words: Sequence[str], option: str) -> list[str]:
    """A command line's words without an option that takes a value, in either spelling."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*found, word, *rest]
        if word == option:
            next(rest, None)
        elif not word.startswith(f"{option}="):
            found.append(word)
    return found


def some(count: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def echo(text: str) -> None:
    """A line with colours on a terminal only, and not on one whose owner wants none."""
    click.echo(text.rstrip(), color=False if os.environ.get("NO_COLOR") else None)


def print_lines(values: dict[str, Any]) -> None:
    """Names and values, one a line, whole; None is left out."""
    for name, value in values.items():
        if value is not None:
            click.echo(f"{name:<19}{escaped(str(value))}")


def with_filled(
    columns: Sequence[str], rows: Sequence[dict[str, Any]], sometimes: Sequence[str] = ("tenant",)
) -> list[str]:
    """The columns of a table; these only if a row has something there, as a library's queue has no tenant."""
    return [name for name in columns if name not in sometimes or any(row[name] for row in rows)]


def _whole(value: Any) -> str:
    return clock(value) if isinstance(value, datetime) else text_of(value)


def print_job(job: dict[str, Any]) -> None:
    """A job and what happened to it, line by line."""
    said = {name: job[name] for name in ("app", "queue", *_FIELDS)}
    said["time_windows"] = describe(msgspec.json.encode(job["time_windows"]).decode())
    said |= {name: said[name] or "(none)" for name in ("lane", "tenant")}
    said |= {"retry": job["retry"] and in_words(job["retry"]), "then": job["then"], "traceparent": job["traceparent"]}
    said |= {name: None if job[name] is None else json.dumps(job[name]) for name in ("data", "result")}
    said["error"] = job["error"]
    if progress := job["progress"]:
        said["progress"] = f"{progress_in_words(progress['fraction'], progress['message'])} ({clock(progress['at'])})"
    print_lines({name.replace("_", " "): _whole(value) for name, value in said.items() if value not in (None, "")})
    click.echo("history")
    for at, text in timeline(job):
        click.echo(f"  {clock(at)}  {text}")
    if job.get("traceback"):
        click.echo("traceback")
        for line in job["traceback"].splitlines():
            click.echo(f"  {escaped(line)}")
    if job.get("answers"):
        click.echo("answers")
        print_table(("number", "state", "arrived", "id"), job["answers"], "  ")
    if job.get("more_answers"):
        click.echo(f"  and more: hipq answers list --job {job['id']}")


def timeline(job: dict[str, Any]) -> list[tuple[datetime, str]]:
    found = []
    for entry in job["history"]:
        details = " ".join(f"{k}={_whole(v)}" for k, v in entry.items() if k not in ("at", "event"))
        found.append((entry["at"], escaped(f"{entry['event']} {details}".strip())))
    return found
