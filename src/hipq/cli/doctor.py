"""`hipq doctor`: what is wrong with a database, and what to do about it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from hipq.cli.commands import examples
from hipq.cli.complain import note
from hipq.cli.inputs import Duration
from hipq.cli.show import print_json
from hipq.cli.target import AppCommand, app_argument, database, db_option, json_option, load, shown

if TYPE_CHECKING:
    from hipq import Hipq
    from hipq.doctor.finding import View


@click.command(
    cls=AppCommand,
    epilog=examples(
        "hipq doctor shop:app",
        "hipq doctor --db postgresql://ann@localhost/shop --strict --json",
    ),
)
@app_argument
@db_option
@click.option("--patience", type=Duration("patience"), default="5m", show_default=True,
              help="How late something must be to be worth a word.")  # fmt: skip
@click.option("--deep", is_flag=True, help="SQLite: look at every page of the file, too. Takes as long as reading it.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings, too.")
@json_option
def doctor(app: str, db: str | None, patience: float, deep: bool, strict: bool, as_json: bool) -> int:
    """Look for what is wrong with a database, and say what to do about each thing. Nothing is changed.

    Exit 0: no problem. 1: a problem, or the database cannot be read. 2: bad usage.
    """
    from hipq.cli.show_findings import print_findings
    from hipq.doctor.diagnose import diagnose
    from hipq.doctor.finding import PROBLEM, WARNING, at_worst  # other commands need not load any of this
    from hipq.doctor.look import look

    if app and db:
        raise click.UsageError("give MODULE:APP or --db, not both")
    program = load(app) if app else None
    url = program.url if program else database(db)
    note(f"database: {shown(url)}")
    health = look(url, deep)
    if program:
        health.queues = [queue for queue in health.queues if queue.tables.app == program.name]
    findings = diagnose(health, _view(app, url, program, patience))
    if as_json:
        print_json([finding.listed() for finding in findings])
    else:
        print_findings(findings)
    return int(at_worst(findings) in ((PROBLEM, WARNING) if strict else (PROBLEM,)))


def _view(app: str, url: str, program: Hipq | None, patience: float) -> View:
    from hipq.doctor.finding import View

    if program is None:
        return View(f"--db {shlex.quote(shown(url))}", "", patience)
    code = {
        f"{program.name}.{queue.name}": frozenset(one.name for one in queue.job_types if one.spec.fn)
        for queue in program.queues
    }
    return View(app, app, patience, code)
