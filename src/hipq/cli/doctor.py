"""`hipq doctor`: what is wrong with a database, and what to do about it."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from hipq.cli.commands import command
from hipq.cli.complain import is_terminal, note
from hipq.cli.inputs import Duration
from hipq.cli.show import echo, say, some
from hipq.cli.target import AppCommand, Target, shown
from hipq.doctor.finding import LEVELS, NOTE, OK, PROBLEM, WARNING, Finding, View, at_worst
from hipq.errors import Invalid
from hipq.observe.logs import escaped
from hipq.shards.database import ShardedDatabase
from hipq.stores.password import without_password

_COLOURS: Final = {OK: "green", NOTE: "cyan", WARNING: "yellow", PROBLEM: "red"}
_INDENT: Final = " " * 11


@command(
    "doctor",
    "hipq doctor shop:app",
    "hipq doctor --db postgresql://ann@localhost/shop --strict --json",
    cls=AppCommand,
)
@click.option("--patience", type=Duration("patience"), default="5m", show_default=True,
              help="How late something must be before it is reported.")  # fmt: skip
@click.option("--deep", is_flag=True, help="SQLite: look at every page of the file, too. Takes as long as reading it.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings, too.")
def doctor(target: Target, patience: float, deep: bool, strict: bool) -> int:
    """Find what is wrong with a database, and say what to do about each problem. Nothing is changed.

    Exit 0: no problem. 1: a problem, or the database cannot be read. 2: bad usage.
    """
    from hipq.doctor.diagnose import diagnose, look  # other commands need not load all of this

    url = target.program.url if target.app else target.url
    if target.app and isinstance(target.program.database, ShardedDatabase):
        places = ", ".join(map(without_password, target.program.database.urls.values()))
        raise Invalid(f"this looks at one database: give --db with one of the shards, {places}")
    note(f"database: {shown(url)}")
    health = look(url, deep)
    view = View(f"--db {shlex.quote(shown(url))}", "", patience)
    if target.app:
        name, queues = target.program.name, target.program.queues
        health.queues = [queue for queue in health.queues if queue.tables.app == name]
        code = {f"{name}.{one.name}": frozenset(each.name for each in one.job_types if each.spec.fn) for one in queues}
        view = View(target.app, target.app, patience, code)
    findings = diagnose(health, view)
    say([finding.listed() for finding in findings], lambda: _print(findings))
    return int(at_worst(findings) in ((PROBLEM, WARNING) if strict else (PROBLEM,)))


def _print(findings: Sequence[Finding]) -> None:
    """By subject, each with what to do under it, and a line that sums them up."""
    check = ""
    for finding in findings:
        if finding.check != check:
            check = finding.check
            echo(click.style(check, bold=True))
        queue = f"{finding.queue}: " if finding.queue else ""
        first, *more = _lines(escaped(queue + finding.sentence))
        echo(f"  {click.style(f'{finding.level:<9}', fg=_COLOURS[finding.level])}{first}")
        for line in more:
            echo(_INDENT + line)
        if finding.advice and finding.level != OK:
            echo(f"{_INDENT}do: {escaped(finding.advice)}")  # on one line: a command in it can be copied
    counts = Counter(finding.level for finding in findings)
    bad = [some(counts[level], level) for level in reversed(LEVELS) if level != OK and counts[level]]
    echo(f"{', '.join(bad) or 'nothing found'}; {counts[OK]} ok")


def _lines(text: str) -> list[str]:
    """As a terminal has room; whole where a program reads it."""
    if not is_terminal(sys.stdout):
        return [text]
    return textwrap.wrap(text, max(shutil.get_terminal_size().columns - len(_INDENT), 30)) or [""]
