"""docs/dashboard.md: its programs run, its commands start, and the options are those of the command."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click

from hipq.cli.main import cli
from tests.dashboard.serving import logged_in
from tests.docs.test_readme import ROOT, blocks, console, environment, run
from tests.servers import free_port

PAGE = "docs/dashboard.md"
DJANGO = """
import django
from django.conf import settings

settings.configure(ROOT_URLCONF="urls", INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"])
django.setup()
from django.test import Client

found = Client().get("/hipq/jobs?type=x")
assert (found.status_code, found["location"]) == (302, "/accounts/login/?next=/hipq/jobs%3Ftype%3Dx"), found
"""


def started(command: str, expected: str, folder: Path) -> None:
    """A dashboard of the guide, on a port that is free: what it prints, and the page behind its URL."""
    port = str(free_port())
    words = [*shlex.split(command), "--port", port]
    with subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        try:
            assert doctest.OutputChecker().check_output(expected.replace("4477", port), line, doctest.ELLIPSIS), line
            url = json.loads(line)["url"] if line.startswith("{") else line.removeprefix("dashboard: ").strip()
            assert 'href="/jobs"' in logged_in(url)
        finally:
            process.terminate()
    assert process.returncode == 0


def test_every_example_runs(tmp_path: Path) -> None:
    commands = programs = files = 0
    for language, block in blocks(PAGE):
        if language == "console":
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
                if command.startswith("hipq dashboard"):
                    started(command, expected, tmp_path)
                else:
                    console(f"$ {command}\n{expected}", tmp_path)
                commands += 1
        elif language == "python" and (name := re.match(r"# (\w+\.py)\n", block)):
            (tmp_path / name[1]).write_text(block)
            files += 1
        elif language == "python":
            run([sys.executable, "-c", block], tmp_path)
            programs += 1
        else:
            assert language in ("sh", "text")
    assert (files, commands, programs) == (3, 3, 1)
    run([sys.executable, "-c", DJANGO], tmp_path)


def test_it_has_all_options_of_the_command() -> None:
    command = cli.commands["dashboard"]
    options = {name for one in command.params if isinstance(one, click.Option) and not one.hidden for name in one.opts}
    text = (ROOT / PAGE).read_text()
    assert options - set(re.findall(r"--[a-z-]+", text)) == set()
