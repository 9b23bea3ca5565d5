"""Findings on a terminal: by subject, each with what to do under it, and a line that sums them up."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from hipq.cli.complain import is_terminal
from hipq.doctor.finding import LEVELS, NOTE, OK, PROBLEM, WARNING, Finding
from hipq.observe.logs import escaped

_COLOURS: Final = {OK: "green", NOTE: "cyan", WARNING: "yellow", PROBLEM: "red"}
_INDENT: Final = " " * 11


def print_findings(findings: Sequence[Finding]) -> None:
    check = ""
    for finding in findings:
        if finding.check != check:
            check = finding.check
            _echo(click.style(check, bold=True))
        queue = f"{finding.queue}: " if finding.queue else ""
        first, *more = _lines(escaped(queue + finding.sentence))
        _echo(f"  {click.style(f'{finding.level:<9}', fg=_COLOURS[finding.level])}{first}")
        for line in more:
            _echo(_INDENT + line)
        if finding.advice and finding.level != OK:
            _echo(f"{_INDENT}do: {escaped(finding.advice)}")  # on one line: a command in it can be copied
    _echo(_summary(findings))


def _lines(text: str) -> list[str]:
    """As a terminal has room; whole where a program reads it."""
    if not is_terminal(sys.stdout):
        return [text]
    return textwrap.wrap(text, max(shutil.get_terminal_size().columns - len(_INDENT), 30)) or [""]


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.level for finding in findings)
    parts = [_several(counts[level], level) for level in reversed(LEVELS) if level != OK and counts[level]]
    return f"{', '.join(parts) or 'nothing found'}; {counts[OK]} ok"


def _several(count: int, level: str) -> str:
    return f"{count} {level}" if count == 1 else f"{count} {level}s"


def _echo(text: str) -> None:
    """Colours on a terminal only, and not on one whose owner wants none."""
    click.echo(text.rstrip(), color=False if os.environ.get("NO_COLOR") else None)
