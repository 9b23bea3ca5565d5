"""`hipq move`: the jobs of a SQLite file go to PostgreSQL or MariaDB while programs use them."""

from __future__ import annotations

import click

from hipq.cli.commands import asked, command, quiet_option
from hipq.cli.inputs import Duration
from hipq.cli.progress import Bar, progress
from hipq.cli.show import print_table, say
from hipq.cli.target import shown
from hipq.move.moving import WAIT, MoveProgress, MoveReport, move
from hipq.stores.open import url_of

_WORDS = {
    "drain": "no more jobs start; waiting for handlers that run",
    "lock": "the file is locked: programs that write to it wait",
    "copy": "copying",
    "verify": "reading everything back, and comparing",
    "arrive": "it has arrived",
    "leave": "the file says where the jobs are now",
    "open": "programs go on over there",
}


class _Telling(MoveProgress):
    def __init__(self, bar: Bar) -> None:
        self._bar, self._running = bar, 0

    def _say(self, text: str) -> None:
        if not (asked("quiet") or asked("json")):
            click.echo(text, err=True)

    def step(self, name: str) -> None:
        self._say(_WORDS[name])

    def running(self, ids: list[int]) -> None:
        if len(ids) != self._running:
            self._say(f"still running: {len(ids)}")
        self._running = len(ids)

    def total(self, rows: int) -> None:
        self._bar.total = rows

    def advance(self, rows: int) -> None:
        self._bar.advance(rows)


@command(
    "move",
    "hipq move sqlite:///shop.db postgresql://user@host/database",
    "hipq move sqlite:///shop.db mariadb://user@host/database --wait 10m --json",
)
@click.argument("source")
@click.argument("target")
@click.option("--wait", type=Duration("wait"), default=WAIT, show_default=True,
              help="How long running handlers have to end; then nothing is moved.")  # fmt: skip
@quiet_option
def move_jobs(source: str, target: str, wait: float) -> None:
    """Move all jobs of SOURCE, a SQLite file, to TARGET, a PostgreSQL or MariaDB database that hipq does not use.

    Programs that use them go on meanwhile: engines start no more jobs until it is done, what is added waits while the
    file is locked, and then all of them go on with TARGET by themselves. Every table is read back and compared before
    anything is switched. Interrupted at any point it can be run again: nothing is lost, and nothing is there twice.
    """
    source, target = url_of(source), url_of(target)
    click.echo(f"from {shown(source)}\nto   {shown(target)}", err=True)
    with progress("rows", 0) as bar:
        report = move(source, target, wait=wait, progress=_Telling(bar))
    say({**report._asdict(), "tables": [table._asdict() for table in report.tables]}, lambda: _print(report))


def _print(report: MoveReport) -> None:
    if not report.tables:
        click.echo("these jobs had moved there already")
    else:
        print_table(("name", "rows", "checksum"), [table._asdict() for table in report.tables])
        stopped = sum(report.seconds.get(step, 0.0) for step in ("lock", "copy", "verify", "arrive", "leave"))
        click.echo(f"all of it has arrived, row for row; programs could not write for {stopped:.1f} s")
    click.echo(
        "\nNext:\n"
        f"  export HIPQ_DATABASE_URL={report.target}\n"
        f"  hipq queue list --db {report.target}\n"
        "Programs with the old address find their way by it, as long as the file is there:\n"
        "it keeps the new address, with a password if that has one."
    )
    if report.others:
        click.echo(
            f"The file has other tables, too ({', '.join(report.others[:5])}): keep it.\n"
            "Once nobody uses the old address, drop hipq_moved, hipq_moving, and those whose names begin with moved_."
        )
    else:
        click.echo("Once nobody uses that any more, delete the file: it has the old rows, too.")
