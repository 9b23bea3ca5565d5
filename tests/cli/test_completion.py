"""Completion, as a shell does it: the script is sourced by a real bash, and its function asked for each line."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from hipq import Hipq
from hipq.cli import complete
from tests.cli.conftest import HipqCommand

BIN = Path(sys.executable).parent
END = "-- end of what is offered --"
DRIVER = f"""
. ./hipq.bash || exit 3
complete -p hipq | grep -q -- '-F _hipq_completion' || exit 4
exec 3<&0 </dev/null
while IFS= read -r COMP_LINE <&3; do
    COMP_POINT=${{#COMP_LINE}}
    _hipq_completion hipq
    printf '%s\\n' "${{COMPREPLY[@]}}" '{END}'
done
"""


@pytest.fixture(scope="module")
def script() -> str:
    """What `hipq completion bash` prints, to be sourced."""
    return subprocess.run([BIN / "hipq", "completion", "bash"], check=True, capture_output=True, text=True).stdout


class Bash:
    """One that has the script: what it offers for each line; nothing may be printed, and no file made."""

    def __init__(self, folder: Path, script: str) -> None:
        self._folder = folder
        self._script = script

    def offers(self, *lines: str, **environment: str) -> list[list[str]]:
        """One bash for all of them: it asks hipq, a process each time, for every line."""
        (self._folder / "hipq.bash").write_text(self._script)
        before = sorted(self._folder.iterdir())
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HIPQ_")}
        clean["PATH"] = f"{BIN}{os.pathsep}{clean['PATH']}"
        done = subprocess.run(
            ["bash", "--norc", "--noprofile", "-c", DRIVER],
            cwd=self._folder, env=clean | environment | {"PYTHONDONTWRITEBYTECODE": "1"},
            input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(self._folder.iterdir()) == before
        *found, rest = done.stdout.split(f"{END}\n")
        assert (len(found), rest) == (len(lines), "")
        return [[word for word in one.splitlines() if word] for one in found]

    def comes_to_offer(self, expected: dict[str, list[str]], **environment: str) -> None:
        """A database is given up after a second, which may be too short on a busy machine: then it is asked again."""
        for _ in range(10):
            found = dict(zip(expected, self.offers(*expected, **environment), strict=True))
            if found == expected:
                return
        assert found == expected


@pytest.fixture
def bash(folder: Path, script: str) -> Bash:
    return Bash(folder, script)


def test_commands_options_and_choices(bash: Bash) -> None:
    expected = {
        "hipq que": ["queue"],
        "hipq queue ": ["limit", "list", "pause", "resume"],
        "hipq answers list shop:app --li": ["--limit"],
        "hipq answers list shop:app --state=bu": ["buffered"],
        "hipq worker shop:app --log-format ": ["text", "json", "none"],
        "hipq job list shop:app --state fi": ["final"],
        "hipq job list shop:app --phase wai": ["waiting"],
        "hipq job list shop:app --phase canc": ["cancelling"],
        "hipq completion ": ["bash", "zsh", "fish"],
    }
    commands, states, *found = bash.offers("hipq ", "hipq answers list shop:app --state ", *expected)
    assert {"answers", "job", "queue", "worker", "completion", "config"} <= set(commands)
    assert "buffered" in states
    assert dict(zip(expected, found, strict=True)) == expected


def test_what_is_left_alone(bash: Bash) -> None:
    """MODULE:APP, ids, keys: nothing is offered, and nothing goes wrong."""
    lines = (
        "hipq worker sh",
        "hipq job show shop:app ",
        "hipq answers show shop:app 1",
        "hipq answer shop:app orders charge ",
    )
    assert bash.offers(*lines) == [[], [], [], []]


def test_queues_and_types_of_the_source_without_running_it(bash: Bash, folder: Path) -> None:
    (folder / "farm").mkdir()
    (folder / "farm" / "__init__.py").write_text("")
    (folder / "farm" / "cows.py").write_text(
        "open('it-ran', 'w')\nprint('noise')\n"
        "app = Hipq('farm')\nbarn = app.queue('barn', limits=[limit(3)])\nfield = app.queue(NAME)\n"
        "@barn.job\nasync def milk(job): ...\n@barn.job('feed', timeout=5)\ndef other(job): ...\n"
        "@barn.cron('0 6 * * *')\ndef wake(job): ...\nbarn.job('walk')(print)\n"
        "wake.cron('0 7 * * *', name='late')\nwake.cron(WHEN, name=NAME)\n"
    )
    expected = {
        "hipq queue pause shop:app ": ["mails", "orders"],
        "hipq queue pause shop:app or": ["orders"],
        "hipq worker shop:app -q ": ["mails", "orders"],
        "hipq worker shop:app -q orders,": ["orders,mails"],
        "hipq enqueue shop:app orders ch": ["charge"],
        "hipq queue pause farm.cows:app ": ["barn"],
        "hipq enqueue farm.cows:app barn ": ["feed", "milk", "wake", "walk"],
        "hipq cron pause farm.cows:app barn ": ["late", "wake"],
    }
    assert dict(zip(expected, bash.offers(*expected), strict=True)) == expected
    assert bash.offers("hipq queue pause ", HIPQ_APP="farm.cows:app") == [["barn"]]
    (folder / "hipq.toml").write_text('app = "shop:app"')
    assert bash.offers("hipq queue pause ", "hipq queue pause nowhere:app ") == [["mails", "orders"], []]


def test_queues_and_types_of_a_database(bash: Bash, folder: Path) -> None:
    other = Hipq("farm", f"sqlite:///{folder}/shop.db")
    other.queue("barn").enqueue("milk")
    other.queue("field").enqueue("walk")
    url = f"sqlite:///{folder}/shop.db"
    bash.comes_to_offer({f"hipq queue pause --db {url} ": ["barn", "field"]})  # beside a program that has it open
    other.close()
    expected = {
        f"hipq queue pause --db {url} ": ["barn", "field"],  # and when nobody has
        "hipq queue pause --db sqlite:///shop.db b": ["barn"],
        f"hipq job list --db {url} --type ": ["milk", "walk"],
        f"hipq job list --db {url} -q ": ["barn", "field"],
    }
    bash.comes_to_offer(expected)
    bash.comes_to_offer({"hipq queue pause ": ["barn", "field"]}, HIPQ_DATABASE_URL=url)
    again = Hipq("zoo", url)
    again.queue("barn").enqueue("clean")
    again.close()
    bash.comes_to_offer({f"hipq queue pause --db {url} ": ["farm.barn", "farm.field", "zoo.barn"]})


def test_queues_of_postgresql(bash: Bash, postgres: str) -> None:
    farm = Hipq("farm", postgres)
    farm.queue("barn").enqueue("milk")
    farm.close()
    bash.comes_to_offer({f"hipq queue pause --db {postgres} bar": ["barn"]})
    bash.comes_to_offer({"hipq job list --type mi": ["milk"]}, HIPQ_DATABASE_URL=postgres)


def test_a_database_that_is_not_there_is_not_made(bash: Bash, folder: Path) -> None:
    (folder / "text.db").write_text("this is no database")
    urls = (
        "sqlite:///typo.db",
        "sqlite:///text.db",
        "sqlite:///no/folder.db",
        "mongodb://x",
        "postgresql://127.0.0.1:1/x",
    )
    assert bash.offers(*(f"hipq queue pause --db {url} " for url in urls)) == [[]] * len(urls)
    (folder / "hipq.toml").write_text("broken")
    nothing, commands = bash.offers("hipq queue pause ", "hipq ")
    assert nothing == []
    assert "queue" in commands


def test_a_server_that_does_not_answer_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ctx = click.Context(click.Command("x"))
        ctx.params["db"] = f"postgresql://ann@127.0.0.1:{port}/shop"
        began = time.monotonic()
        assert complete.known(ctx) == (set(), set(), set())
        assert time.monotonic() - began < 20
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
