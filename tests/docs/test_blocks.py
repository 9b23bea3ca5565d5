"""Every block of code in README.md and docs/ is run by a test, or a comment above it says why not.

`tests/docs/test_readme.py` runs all blocks of the pages in `GUIDES`. Other pages have a test of their own, which is
named here with the languages it runs. A block that nobody runs is marked, in a line that readers do not see:

    <!-- not run: it needs a cluster of Kafka -->
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator

import click
import pytest

from hipq.cli.main import cli
from tests.docs.test_readme import GUIDES, ROOT, blocks

PAGES = ["README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]
SHOWN = {"text", "row", "mermaid"}
"""What is printed or drawn: no code."""
RUN_BY = {
    "docs/celery.md": {"tests/docs/test_celery_guide.py": "python"},
    "docs/clients.md": {"tests/docs/test_clients_guide.py": "sh"},
    "docs/command-line.md": {"tests/docs/test_command_line.py": "python console toml"},
    "docs/configuration.md": {"tests/docs/test_configuration.py": "console"},
    "docs/daemon.md": {"tests/docs/test_daemon_guide.py": "python", "tests/daemon/test_joblog.py": "sh"},
    "docs/dashboard.md": {"tests/docs/test_dashboard_guide.py": "python console"},
    "docs/deploying-handlers.md": {"tests/docs/test_deploying_handlers.py": "toml python console"},
    "docs/doctor.md": {"tests/doctor/test_page.py": "sh"},
    "docs/handlers-in-other-languages.md": {"tests/executors/test_docs.py": "python js php sh"},
    "docs/http-api.md": {"tests/daemon/test_api_docs.py": "console python"},
    "docs/journal.md": {"tests/cli/test_journal.py": "console python"},
    "docs/life-of-a-job.md": {"tests/docs/test_tour.py": "python"},
    "docs/logs.md": {"tests/docs/test_logs_guide.py": "python"},
    "docs/metrics.md": {"tests/observe/test_metrics.py": "python"},
    "docs/moving.md": {"tests/docs/test_operating.py": "sh"},
    "docs/operating.md": {"tests/docs/test_operating.py": "sh python"},
    "docs/reference.md": {"tests/docs/test_reference.py": "python"},
    "docs/shards.md": {"tests/shards/test_page.py": "python"},
    "docs/start.md": {"tests/docs/test_start.py": "sh console python"},
    "docs/states.md": {"tests/docs/test_documents.py": "sql"},
    "docs/tables.md": {"tests/docs/test_tables_guide.py": "python js console sql"},
    "docs/tenants.md": {"tests/daemon/test_api_docs.py": "console sh"},
    "docs/testing.md": {"tests/docs/test_testing_guide.py": "python console"},
    "docs/traces.md": {"tests/observe/test_traces.py": "python"},
    "docs/waiter.md": {
        "tests/docs/test_waiter_guide.py": "python", "tests/docs/test_waiter_consumer_guide.py": "console",
    },
}  # fmt: skip


def installs(code: str) -> bool:
    """It makes the environment in which the rest is run."""
    return all(line.startswith("pip install ") for line in code.splitlines())


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    run = {language for languages in RUN_BY.get(page, {}).values() for language in languages.split()}
    if page in GUIDES:
        run |= {"console", "python", "sh"}
    text = (ROOT / page).read_text()
    assert not re.search(
        r"^```\n(?:(?!```).*\n)+?```$", re.sub(r"^```\w+\n.*?^```$", "", text, flags=re.S | re.M), re.M
    ), "a block without a language: text, if it is no code"
    left = [
        (language, code[:60]) for language, code in blocks(page) if language not in SHOWN | run and not installs(code)
    ]
    assert not left, "run it in a test (RUN_BY), or say above it: <!-- not run: why -->"


@pytest.mark.parametrize("page", RUN_BY)
def test_the_test_of_a_page_reads_it(page: str) -> None:
    there = {language for language, _ in blocks(page)}
    for file, languages in RUN_BY[page].items():
        assert page.removeprefix("docs/") in (ROOT / file).read_text()
        assert set(languages.split()) <= there, f"{page} has no such block any more"


def test_a_block_that_nobody_runs_is_found() -> None:
    marked = re.findall(r"<!-- not run: (.*?) -->\n(.*)", "".join((ROOT / page).read_text() for page in PAGES))
    assert len(marked) > 5
    assert all(len(why) > 10 and below.startswith("```") for why, below in marked), marked
    named = {name for why, _ in marked for name in re.findall(r"tests/[\w/.]+", why)}
    assert all((ROOT / name).exists() for name in named), named


def shell_lines(page: str) -> Iterator[str]:
    """Every line of the page's shell blocks, run or not."""
    for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(), flags=re.S | re.M):
        yield from block.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_in_a_shell_block_can_be_given(page: str) -> None:
    """Also those that no test runs, as they need a server of yours."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in shell_lines(page):
        for named in re.findall(r"hipq\[([\w,]+)\]", line):
            assert set(named.split(",")) <= set(extras), line
        if not re.match(r"(\w+=\S+ )*hipq ", line):
            continue
        words = shlex.split(
            line.replace("--db URL", "--db sqlite://").partition(" &")[0].partition(" | ")[0].partition(" > ")[0],
            comments=True,
        )
        words = words[words.index("hipq") + 1 :]
        command: click.Command = cli
        while isinstance(command, click.Group):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        if not set(words) & {"--help"}:
            command.make_context(command.name, words)
