"""`hipq bench`: what a database can do with hipq, measured in about a minute, drawn and explained."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from hipq.cli.commands import command
from hipq.cli.complain import complain
from hipq.cli.inputs import Duration
from hipq.cli.show import echo, say
from hipq.cli.target import given_db, shown

if TYPE_CHECKING:
    from hipq.benchmark.database import BenchmarkDatabase
    from hipq.benchmark.workbench import Workbench

_LABELS: Final = 34
"""Columns that are left of the figures."""


@command(
    "bench",
    "hipq bench",
    "hipq bench --db postgresql://ann@localhost/shop --seconds 30",
    "hipq bench --json > before.json",
    short_help="Measure how many jobs a database can take.",
)
@click.option(
    "--db", metavar="URL", callback=given_db, help="The database; else $HIPQ_DATABASE_URL, else a new SQLite file here."
)
@click.option(
    "--seconds", type=Duration("seconds", 1), default="60", show_default=True, help="About how long it takes."
)
def bench(db: str | None, seconds: float) -> int:
    """Measure a database: adding jobs, running them, picking them up, answering them.

    It works in tables of its own and removes them afterwards. Without a database it makes a SQLite file in the current
    directory, whose disk is what is measured.
    """
    from hipq.benchmark.database import chosen_database
    from hipq.benchmark.interruption import Interrupted, Interruption  # other commands need not load any of this
    from hipq.benchmark.workbench import NotRemoved, Workbench

    began, left = time.monotonic(), ""
    try:
        with Interruption() as interruption, chosen_database(db) as place:
            click.echo(f"database: {shown(place.url)}", err=True)
            size = _size(place)
            try:
                with Workbench(place.url, interruption) as workbench:
                    report = _measured(workbench, place, seconds)
            except NotRemoved as error:
                left = str(error)
            grown = 0 if place.temporary else _size(place) - size
    except Interrupted as interrupted:
        return complain(f"interrupted by {interrupted}: what was made for it is removed", interrupted.status)
    report |= {"took": time.monotonic() - began, "file_grown_bytes": grown}
    say(report, lambda: _print(report))
    return complain(left, 1) if left else 0


def _size(place: BenchmarkDatabase) -> int:
    return place.file.stat().st_size if place.file and place.file.exists() else 0


# -- measuring -------------------------------------------------------------------------------------------------------
def _measured(workbench: Workbench, place: BenchmarkDatabase, seconds: float) -> dict[str, Any]:
    from hipq.benchmark import pick_up, surroundings
    from hipq.benchmark.picture import histogram
    from hipq.benchmark.rates import RATES, in_rounds

    rates = []
    with Progress(len(RATES) + 2) as progress:
        progress.tell("the database and the way to it")
        around = surroundings.surroundings(workbench, place, seconds * surroundings.SHARE)
        for one in RATES:
            progress.tell(f"{one.group}: {one.text}")
            found = in_rounds(workbench, one.run, seconds * one.share, one.in_all)
            line = {"name": one.name, "group": one.group, "text": one.text, "per_second": found.rate}
            rates.append(line | {"jobs": found.jobs, "rounds": found.rounds})
        progress.tell("pick-up by an idle worker in another process")
        waits = pick_up.pick_up(workbench, seconds * pick_up.SHARE)
    return {
        "url": shown(place.url),
        "temporary": place.temporary,
        "surroundings": around,
        "statistic": "median of rounds",
        "rates": rates,
        "pick_up": {
            "unit": "ms",
            "jobs": len(waits.milliseconds),
            **{f"p{part}": waits.percentile(part) for part in (50, 95, 99)},
            "max": waits.milliseconds[-1],
            "histogram": [
                {"from": low, "below": high, "jobs": jobs} for low, high, jobs in histogram(waits.milliseconds)
            ],
        },
    }


class Progress:
    """What is being measured: one line that is written again and again on a terminal, lines in a file."""

    def __init__(self, steps: int) -> None:
        self._steps, self._step = steps, 0
        self._rewrites = sys.stderr.isatty()

    def tell(self, what: str) -> None:
        self._step += 1
        line = f"measuring {self._step} of {self._steps}: {what}"
        click.echo(f"\r\x1b[K{line}" if self._rewrites else line, err=True, nl=not self._rewrites)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rewrites:  # what comes next, a complaint perhaps, begins on an empty line
            click.echo("\r\x1b[K", err=True, nl=False)


# -- printing --------------------------------------------------------------------------------------------------------
def _print(report: dict[str, Any]) -> None:
    from hipq.benchmark.meaning import meaning
    from hipq.benchmark.picture import wrapped
    from hipq.terminal import Ink

    columns = min(shutil.get_terminal_size().columns, 100)
    ink, width = Ink.of(sys.stdout.encoding), max(columns - _LABELS - 14, 10)
    _print_surroundings(report)
    fastest = max(line["per_second"] for line in report["rates"])
    group = ""
    for line in report["rates"]:
        if line["group"] != group:
            group = line["group"]
            _heading(f"{group:<{_LABELS}} {'a second':>11}")
        bar = click.style(ink.bar(line["per_second"], fastest, width), fg="cyan")
        echo(f"  {line['text']:<{_LABELS - 2}} {line['per_second']:>11,.0f}  {bar}")
    _print_pick_up(report["pick_up"], ink, width)
    click.echo()
    for line in wrapped(meaning(report), columns):
        click.echo(line)
    click.echo(f"Rates are the median of rounds. This took {report['took']:.0f} s.")
    if report["file_grown_bytes"] > 0:
        click.echo(
            f"The file is {report['file_grown_bytes'] / 1e6:.1f} MB larger: free pages, which SQLite uses again."
        )


def _print_surroundings(report: dict[str, Any]) -> None:
    around = report["surroundings"]
    click.echo(f"hipq {around['hipq']}, Python {around['python']}, {around['machine']}")
    network = "over the network" if around["network"] else "not over the network"
    click.echo(f"{around['database']} {around['version']}, {around['connection']}, {network}: {report['url']}")
    if report["temporary"]:
        click.echo("a new file in this directory, removed again: the disk it was on is what was measured")
    if "sync_ms" in around:
        click.echo(f"append and sync in its directory {around['sync_ms']:.3f} ms, commit {around['commit_ms']:.3f} ms")
    else:
        names = ("fsync", "synchronous_commit", "innodb_flush_log_at_trx_commit", "sync_binlog")
        settings = ", ".join(f"{name} {around[name]}" for name in names if name in around)
        click.echo(f"SELECT 1 {around['round_trip_ms']:.3f} ms, commit {around['commit_ms']:.3f} ms; {settings}")


def _print_pick_up(waits: dict[str, Any], ink: Any, width: int) -> None:
    _heading("pick-up by an idle worker in another process")
    figures = ", ".join(f"{name} {waits[name]:.2f}" for name in ("p50", "p95", "p99", "max"))
    click.echo(f"  {waits['jobs']:,} jobs, in ms: {figures}")
    most = max(bucket["jobs"] for bucket in waits["histogram"])
    for bucket in waits["histogram"]:
        label = f"{bucket['from']:g} to {bucket['below']:g} ms"
        bar = click.style(ink.bar(bucket["jobs"], most, width), fg="cyan")
        echo(f"  {label:<{_LABELS - 2}} {bucket['jobs']:>11,}  {bar}")


def _heading(text: str) -> None:
    click.echo()
    echo(click.style(text, bold=True))
