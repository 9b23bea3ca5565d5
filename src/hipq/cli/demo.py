"""`hipq demo`: a shop and a pretend bank for half a minute, on SQLite, and whether it all adds up. Ends by itself."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from signal import SIGHUP
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import click

from hipq.cli.commands import asked, command
from hipq.cli.complain import complain
from hipq.cli.inputs import Duration
from hipq.cli.show import say
from hipq.cli.target import announced, shown
from hipq.errors import Invalid
from hipq.job.states import FINAL
from hipq.terminal import can_draw

if TYPE_CHECKING:
    from hipq.benchmark.interruption import Interruption
    from hipq.demo.run import Run
    from hipq.demo.summary import DemoFacts

_LEAST: Final = 3
_MOST: Final = 3600
_LABELS: Final = 14
"""Columns that are left of what a check says."""


@command("demo", "hipq demo", "hipq demo --seconds 10 --plain", "hipq demo --keep demo --json")
@click.option(
    "--seconds", type=Duration("seconds", _LEAST), default="30", show_default=True, help="About how long it takes."
)
@click.option("--keep", metavar="FOLDER", help="Where its database goes; else among the temporary files, for a day.")
@click.option("--plain", is_flag=True, help="Lines instead of a picture, as when the output is no terminal.")
def demo(seconds: float, keep: str | None, plain: bool) -> int:
    """Watch a shop charge some hundred orders at a bank that answers late, twice, early or never.

    There are limits, regions with shares, priorities, a time window, retries, time-outs and a crash. In the end
    everything is counted: exit 1 if it does not add up.
    """
    from hipq.benchmark.interruption import Interrupted, Interruption  # other commands need not load any of this
    from hipq.demo.files import chosen_file
    from hipq.demo.run import Run

    if seconds > _MOST:
        raise Invalid(f"seconds must be at most {_MOST}, not {seconds:g}")
    if plain or os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
    with Interruption() as interruption:
        run = Run(chosen_file(keep), seconds)
        announced(run.shop.app)
        try:
            facts = run.play(lambda gone: _view(run, plain, gone), interruption)
        except Interrupted as interrupted:
            return complain("interrupted before it began", interrupted.status)
        report = _report(run, facts)
        status = _status(interruption) if report["interrupted"] else 0
    if status == 128 + SIGHUP:
        return status  # the terminal has been closed: nobody is there to read it
    say(report, lambda: _print(report))
    if status:
        return complain("interrupted: this is what has been so far", status)
    wrong = dict.fromkeys(check["about"] for check in report["checks"] if not check["holds"])
    return complain(f"it does not add up: look at {', '.join(wrong)}, and tell us", 1) if wrong else 0


def _status(interruption: Interruption) -> int:
    from hipq.benchmark.interruption import Interrupted

    try:
        interruption.heed()
    except Interrupted as interrupted:
        return interrupted.status
    return 0


def _view(run: Run, plain: bool, gone: Callable[[], None]) -> AbstractContextManager[object]:
    from hipq.demo.view import PlainView, Scene, TerminalView

    if asked("json"):
        return nullcontext()
    scene = Scene(run)
    if plain or not can_draw(sys.stdout):
        return PlainView(scene, max(run.seconds / 30, 1.0), gone)
    return TerminalView(scene, sys.stdout)


def _report(run: Run, facts: DemoFacts) -> dict[str, Any]:
    from hipq.demo.afterwards import suggestions
    from hipq.demo.shop import CAPS
    from hipq.demo.summary import checked

    whole = run.ended
    checks = checked(facts) if whole else []
    return {
        "seconds": run.took,
        "database": shown(run.shop.app.url),
        "interrupted": not whole,
        "adds_up": all(check.holds for check in checks) if whole else None,
        "checks": [check._asdict() for check in checks],
        "jobs": dict(Counter(job.code if job.state == FINAL else job.phase for job in facts.jobs)),
        "answers": dict(facts.words),
        "limits": CAPS,
        "bank": dict(facts.bank),
        "clock_slow_seconds": run.shop.clock.slow / 1e6,
        "next": [one._asdict() for one in suggestions(facts, run.shop.app.url)],
    }


# -- printing --------------------------------------------------------------------------------------------------------
def _print(report: dict[str, Any]) -> None:
    width = max(min(shutil.get_terminal_size().columns, 100), 40)
    if report["interrupted"]:
        _print_so_far(report)
    else:
        _heading("Does it add up? The shop, the bank and hipq have each counted on their own:")
        about = ""
        for check in report["checks"]:
            _print_check(check, width, "" if check["about"] == about else check["about"])
            about = check["about"]
        took = f"{sum(report['jobs'].values())} jobs in {report['seconds']:.0f} s"
        _heading(f"{took}: it adds up." if report["adds_up"] else f"{took}: IT DOES NOT ADD UP.")
        slow = report["clock_slow_seconds"]
        click.echo(f"The demo's clock ran {slow:.0f} s behind, so that its window opened while you watched.")
    _heading("What to try next (this database stays for a day, or where --keep puts it):")
    for one in report["next"]:
        click.echo(f"  {click.style('# ' + one['why'], dim=True)}\n  {one['command']}")


def _print_check(check: dict[str, Any], width: int, about: str) -> None:
    mark = click.style("ok", fg="green") if check["holds"] else click.style("NO", fg="red", bold=True)
    first, *more = wrap(check["text"], max(width - _LABELS, 20))
    click.echo(f" {mark} {about:<{_LABELS - 4}}{first}")
    for line in more:
        click.echo(f"{'':<{_LABELS}}{line}")


def _print_so_far(report: dict[str, Any]) -> None:
    _heading(f"After {report['seconds']:.1f} s:")
    bank = report["bank"]
    click.echo("  jobs      " + _said(report["jobs"]))
    click.echo("  answers   " + _said(report["answers"]))
    click.echo(
        f"  the bank  {bank['requests']} requests, {bank['open']} open, never more than {bank['most'].get('all', 0)}"
    )


def _said(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _heading(text: str) -> None:
    click.echo("\n" + click.style(text, bold=True))
