"""How far a long command is, and the question before something is destroyed: on a terminal, in a pipe, not at all."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hipq.cli import progress as module
from hipq.cli.progress import progress
from tests import processes
from tests.cli.terminal import on_terminal

COPY = """
import sys
from hipq.cli.progress import progress
with progress("copying [jobs]", {total}, quiet={quiet}) as bar:
    for _ in range(4):
        bar.advance(25)
    bar.total = 200
    assert (bar.done, bar.total) == (100, 200)
print("done", file=sys.stderr)
"""

ASK = """
import sys, click
from hipq.cli.main import cli, run
from hipq.cli.commands import yes_option
from hipq.cli.progress import confirm
@cli.command()
@yes_option
def burn():
    confirm("Burn it?")
    click.echo("burnt")
sys.exit(run(sys.argv[1:]))
"""


def code(text: str, *, total: int | None = 100, quiet: bool = False) -> list[str]:
    return [sys.executable, "-c", text.format(total=total, quiet=quiet)]


def test_on_a_terminal_a_bar_is_drawn_and_taken_away(tmp_path: Path) -> None:
    shown = on_terminal(code(COPY), tmp_path)
    assert shown.status == 0, shown.text
    assert "copying [jobs]" in shown.text
    assert "100/200" in shown.text
    assert "█" in shown.text
    assert shown.text.endswith("\x1b[2Kdone\r\n")  # its line is empty again


def test_on_a_terminal_an_unknown_total_is_a_count(tmp_path: Path) -> None:
    text = COPY.replace("bar.total = 200", "").replace("(100, 200)", "(100, None)")
    shown = on_terminal(code(text, total=None), tmp_path)
    assert shown.status == 0, shown.text
    assert "100" in shown.text
    assert "100/" not in shown.text


@pytest.mark.parametrize("to_terminal", [True, False])
def test_quiet_shows_nothing(tmp_path: Path, to_terminal: bool) -> None:
    if to_terminal:
        assert on_terminal(code(COPY, quiet=True), tmp_path).text == "done\r\n"
    else:
        done = processes.run(code(COPY, quiet=True), capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", "done\n")


def test_in_a_pipe_what_is_quick_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("copying", 10) as bar:
        bar.advance(10)
    assert capfd.readouterr() == ("", "")


def test_in_a_pipe_there_is_a_line_every_few_seconds(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress("copying", 2_000) as bar:
        for _ in range(10):
            bar.advance(150)
            now += module.EVERY / 4
        bar.total = None
        now += module.EVERY
        bar.advance(100)
        bar.advance(1)
    assert capfd.readouterr() == (
        "", "copying: 750 of 2,000 (38%)\ncopying: 1,350 of 2,000 (68%)\ncopying: 1,600\ncopying: 1,601\n"
    )  # fmt: skip


def test_a_failure_ends_the_bar(tmp_path: Path) -> None:
    shown = on_terminal(code(COPY.replace("bar.total = 200", "sys.exit('no room')")), tmp_path)
    assert shown.status == 1
    assert shown.text.endswith("\x1b[2Kno room\r\n")


# -- confirm ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("typed", "status", "last"),
    [("y\n", 0, "burnt"), ("n\n", 1, "hipq: nothing was changed"), ("\n", 1, "hipq: nothing was changed")],
)
def test_a_terminal_is_asked_and_no_is_the_default(tmp_path: Path, typed: str, status: int, last: str) -> None:
    shown = on_terminal([sys.executable, "-c", ASK, "burn"], tmp_path, typed=typed, after="Burn it? [y/N]: ")
    assert (shown.status, shown.lines[-1]) == (status, last), shown.text


def test_whoever_ends_the_question_has_not_agreed(tmp_path: Path) -> None:
    shown = on_terminal([sys.executable, "-c", ASK, "burn"], tmp_path, typed="\x04", after="Burn it? [y/N]: ")
    assert shown.status == 130
    assert "burnt" not in shown.text
    assert "Traceback" not in shown.text


def test_the_question_is_not_part_of_the_output(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        shown = on_terminal([sys.executable, "-c", ASK, "burn"], tmp_path, typed="y\n", after="[y/N]: ", stdout=out)
    assert shown.status == 0
    assert (tmp_path / "out").read_text() == "burnt\n"


def test_without_a_terminal_yes_must_be_said() -> None:
    command = [sys.executable, "-c", ASK, "burn"]
    refused = processes.run(command, input="y\n", capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "hipq: Burn it? There is no terminal to ask on: say --yes (see hipq burn --help)\n"
    agreed = processes.run([*command, "--yes"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (agreed.returncode, agreed.stdout, agreed.stderr) == (0, "burnt\n", "")
