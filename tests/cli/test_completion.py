"""Completion, as a shell does it: the script is sourced by a real bash, and its function asked for each line."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from hipq import Hipq
from hipq.cli import complete
from tests.cli.conftest import HipqCommand

BIN = Path(sys.executable).parent
DRIVER = """
eval "$(hipq completion bash)" || exit 3
IFS= read -r COMP_LINE
COMP_POINT=${#COMP_LINE}
complete -p hipq | grep -q -- '-F _hipq_completion' || exit 4
_hipq_completion hipq
printf '%s\\n' "${COMPREPLY[@]}"
"""

Completed = Callable[..., list[str]]


@pytest.fixture
def completed(folder: Path) -> Completed:
    """What bash offers for a line; nothing may be printed, and no file made."""

    def ask(line: str, **environment: str) -> list[str]:
        before = sorted(folder.iterdir())
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HIPQ_")}
        clean["PATH"] = f"{BIN}{os.pathsep}{clean['PATH']}"
        done = subprocess.run(
            ["bash", "--norc", "--noprofile", "-c", DRIVER],
            cwd=folder, env=clean | environment | {"PYTHONDONTWRITEBYTECODE": "1"}, input=f"{line}\n",
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(folder.iterdir()) == before
        return [word for word in done.stdout.splitlines() if word]

    return ask


def test_commands_options_and_choices(completed: Completed) -> None:
    assert {"answers", "job", "queue", "worker", "completion", "config"} <= set(completed("hipq "))
    assert completed("hipq que") == ["queue"]
    assert completed("hipq queue ") == ["limit", "list", "pause", "resume"]
    assert completed("hipq answers list shop:app --li") == ["--limit"]
    assert "buffered" in completed("hipq answers list shop:app --state ")
    assert completed("hipq answers list shop:app --state=bu") == ["buffered"]
    assert completed("hipq worker shop:app --log-format ") == ["text", "json"]
    assert completed("hipq job list shop:app --state fi") == ["final"]
    assert completed("hipq job list shop:app --phase wai") == ["waiting"]
    assert completed("hipq job list shop:app --phase call") == ["'calling off'"]
    assert completed("hipq completion ") == ["bash", "zsh", "fish"]


def test_what_is_left_alone(completed: Completed) -> None:
    """MODULE:APP, ids, keys: nothing is offered, and nothing goes wrong."""
    for line in (
        "hipq worker sh",
        "hipq job show shop:app ",
        "hipq answers show shop:app 1",
    ):
        assert completed(line) == []
    assert completed("hipq answer shop:app orders charge ") == []


def test_queues_and_types_of_the_source_without_running_it(completed: Completed, folder: Path) -> None:
    (folder / "farm").mkdir()
    (folder / "farm" / "__init__.py").write_text("")
    (folder / "farm" / "cows.py").write_text(
        "open('it-ran', 'w')\nprint('noise')\n"
        "app = Hipq('farm')\nbarn = app.queue('barn', limits=[limit(3)])\nfield = app.queue(NAME)\n"
        "@barn.job\nasync def milk(job): ...\n@barn.job('feed', timeout=5)\ndef other(job): ...\n"
        "@barn.cron('0 6 * * *')\ndef wake(job): ...\nbarn.job('walk')(print)\n"
    )
    assert completed("hipq queue pause shop:app ") == ["mails", "orders"]
    assert completed("hipq queue pause shop:app or") == ["orders"]
    assert completed("hipq worker shop:app -q ") == ["mails", "orders"]
    assert completed("hipq worker shop:app -q orders,") == ["orders,mails"]
    assert completed("hipq enqueue shop:app orders ch") == ["charge"]
    assert completed("hipq queue pause farm.cows:app ") == ["barn"]
    assert completed("hipq enqueue farm.cows:app barn ") == ["feed", "milk", "wake", "walk"]
    assert completed("hipq queue pause ", HIPQ_APP="farm.cows:app") == ["barn"]
    (folder / "hipq.toml").write_text('app = "shop:app"')
    assert completed("hipq queue pause ") == ["mails", "orders"]
    assert completed("hipq queue pause nowhere:app ") == []


def test_queues_and_types_of_a_database(completed: Completed, folder: Path) -> None:
    other = Hipq("farm", f"sqlite:///{folder}/shop.db")
    other.queue("barn").enqueue("milk")
    other.queue("field").enqueue("walk")
    url = f"sqlite:///{folder}/shop.db"
    assert completed(f"hipq queue pause --db {url} ") == ["barn", "field"]  # beside a program that has it open
    other.close()
    assert completed(f"hipq queue pause --db {url} ") == ["barn", "field"]  # and when nobody has
    assert completed("hipq queue pause --db sqlite:///shop.db b") == ["barn"]
    assert completed("hipq queue pause ", HIPQ_DATABASE_URL=url) == ["barn", "field"]
    assert completed(f"hipq job list --db {url} --type ") == ["milk", "walk"]
    assert completed(f"hipq job list --db {url} -q ") == ["barn", "field"]
    again = Hipq("zoo", url)
    again.queue("barn").enqueue("clean")
    again.close()
    assert completed(f"hipq queue pause --db {url} ") == ["farm.barn", "farm.field", "zoo.barn"]


def test_queues_of_postgresql(completed: Completed, postgres: str) -> None:
    farm = Hipq("farm", postgres)
    farm.queue("barn").enqueue("milk")
    farm.close()
    assert "barn" in completed(f"hipq queue pause --db {postgres} ba")
    assert completed("hipq job list --type mi", HIPQ_DATABASE_URL=postgres) == ["milk"]


def test_a_database_that_is_not_there_is_not_made(completed: Completed, folder: Path) -> None:
    (folder / "text.db").write_text("this is no database")
    for url in (
        "sqlite:///typo.db",
        "sqlite:///text.db",
        "sqlite:///no/folder.db",
        "mongodb://x",
        "postgresql://127.0.0.1:1/x",
    ):
        assert completed(f"hipq queue pause --db {url} ") == []
    (folder / "hipq.toml").write_text("broken")
    assert completed("hipq queue pause ") == []
    assert "queue" in completed("hipq ")


def test_a_server_that_does_not_answer_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ctx = click.Context(click.Command("x"))
        ctx.params["db"] = f"postgresql://ann@127.0.0.1:{port}/shop"
        began = time.monotonic()
        assert complete.known(ctx) == (set(), set())
        assert time.monotonic() - began < 3
    assert folder.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_printed_and_its_shell_reads_it(hipq: HipqCommand, folder: Path, shell: str) -> None:
    ran = hipq("completion", shell)
    assert ran.status == 0
    assert ran.err == ""
    assert f"_HIPQ_COMPLETE={shell}_complete" in ran.out
    if shutil.which(shell):
        (folder / "script").write_text(ran.out)
        assert subprocess.run([shell, "-n", "script"], cwd=folder, capture_output=True).returncode == 0
    assert f"hipq completion {shell}" in hipq("completion", "--help").out


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_are_answered_too(folder: Path, shell: str) -> None:
    """As their scripts ask: with the words, and which one it is (zsh), or the one being typed (fish)."""
    words = {"COMP_WORDS": "hipq queue pause shop:app or", "COMP_CWORD": "4" if shell == "zsh" else "or"}
    environment = os.environ | words | {"_HIPQ_COMPLETE": f"{shell}_complete"}
    done = subprocess.run([BIN / "hipq"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert "orders" in json.dumps(done.stdout)


def test_no_such_shell(hipq: HipqCommand) -> None:
    ran = hipq("completion", "tcsh")
    assert ran.status == 2
    assert "'bash', 'zsh', 'fish'" in ran.complaint
