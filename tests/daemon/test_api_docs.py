"""docs/http-api.md and docs/tenants.md: what they show is what happens, and no route is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hipq.cli.main import cli
from hipq.cli.tenant import tenant
from hipq.daemon.http.api import ROUTES
from hipq.daemon.http.routes_table import Route
from tests.daemon.api_serving import site
from tests.docs.test_readme import ROOT, blocks

HTTP, TENANTS = "docs/http-api.md", "docs/tenants.md"


def commands(block: str) -> list[tuple[str, list[str]]]:
    """What is typed, and the lines that come of it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def fits(shown: list[str], printed: list[str]) -> bool:
    """`...` is anything."""
    pattern = "\n".join(shown)
    return re.fullmatch(re.escape(pattern).replace(r"\.\.\.", ".*"), "\n".join(printed), flags=re.DOTALL) is not None


def environment(folder: Path) -> dict[str, str]:
    """hipq is the one that is tested, and no database but the usual one is said."""
    program = folder / "hipq"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hipq.cli.main "$@"\n')
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HIPQ_")}
    return {**kept, "PATH": f"{folder}:{os.environ['PATH']}", "COLUMNS": "200"}


def test_the_first_example_runs(tmp_path: Path) -> None:
    (block,) = [text for language, text in blocks(HTTP) if language == "console"]
    typed = commands(block)
    assert [text.split()[1] for text, _ in typed[:2]] == ["tenant", "serve"]
    here = site()
    owner = here.tenant()
    (tmp_path / "token").write_text(f"{owner.token}\n")
    known = environment(tmp_path)
    script = "".join(f"{text}\necho '--end--'\n" for text, _ in typed[2:])
    script = script.replace("127.0.0.1:8000", f"127.0.0.1:{owner.daemon.port}").replace("/acme/", f"/{owner.name}/")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=known, capture_output=True, text=True, check=True)
    printed = [part.strip("\n").splitlines() for part in done.stdout.split("--end--\n")]
    for (text, shown), lines in zip(typed[2:], printed, strict=False):
        assert fits(shown, lines), (text, lines, done.stderr)


def test_tenants_are_made_as_shown(tmp_path: Path) -> None:
    (block,) = [text for language, text in blocks(TENANTS) if language == "console"]
    known = environment(tmp_path)
    for text, shown in commands(block):
        done = subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, env=known, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (text, done.stderr)
        assert fits(shown, [line.rstrip() for line in done.stdout.splitlines()]), (text, done.stdout)


def test_the_python_example_runs() -> None:
    (code,) = [text for language, text in blocks(HTTP) if language == "python"]
    owner = site().tenant()
    code = code.replace("http://127.0.0.1:8000", owner.daemon.address)
    program = f"token = {owner.token!r}\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "HELLO\n"), done.stderr


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_route_is_missing_from_the_page(route: Route) -> None:
    page = (ROOT / HTTP).read_text()
    path = route.path.replace("versions/{version}", "versions")
    assert (re.sub(r"/(add|delete)$", "", path) if "/handler/" in path else path) in page


def test_no_option_of_hipq_tenant_is_missing_from_the_page() -> None:
    page = (ROOT / TENANTS).read_text()
    assert cli.commands["tenant"] is tenant
    for name in tenant.commands:
        assert f"hipq tenant {name}" in page
    options = {name for command in tenant.commands.values() for one in command.params for name in one.opts}
    for option in {name for name in options if name.startswith("--")} - {"--yes"}:
        assert option in page
