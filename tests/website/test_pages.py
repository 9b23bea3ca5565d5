"""What the site is made of: every public name, command and route is on a page, and every page is in the index."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
import yaml
from website.__main__ import MADE, linked_sources, pages
from website.repository import PAPERS as ROOT_PAPERS
from website.repository import rewritten, uri

import hipq
from hipq import Hipq, JobType, Queue, transports
from hipq.daemon.http.api import ROUTES
from hipq.jobs import Jobs
from tests.docs.test_blocks import PAGES
from tests.docs.test_command_line import paths
from tests.docs.test_documents import PAPERS, ROOT
from tests.docs.test_readme import blocks
from website import commands, http_routes, python_api, states

API = python_api.page()
COMMANDS = commands.page()


def test_every_public_name_is_in_the_python_api() -> None:
    told = {name for modules in python_api.PARTS.values() for module, names in modules.items() for name in names}
    assert set(hipq.__all__) <= told
    assert all(f"`hipq.{name}`" in API for name in hipq.__all__)


def test_every_name_that_the_guides_import_is_there() -> None:
    internal = {"hipq.components", "hipq.journal", "hipq.django"}  # pages of their own say what they have
    for page in PAGES:
        for _, block in blocks(page):
            for module, names in re.findall(r"^from (hipq[\w.]*) import ([\w, ]+)$", block, flags=re.MULTILINE):
                for name in names.split(", ") if module not in internal else []:
                    known = python_api.PARTS.values()
                    assert any(name in part.get(module, ()) for part in known) or is_module(module, name), (page, name)


def is_module(module: str, name: str) -> bool:
    try:
        return import_module(f"{module}.{name}") is not None
    except ModuleNotFoundError:
        return False


EXPLAINED = [
    Hipq, Hipq.queue, Hipq.run, Hipq.working, Hipq.answer, Hipq.listen, Hipq.pause, Queue.job, Queue.request,
    Queue.enqueue, Queue.enqueue_many, JobType.cron, JobType.enqueue, JobType.enqueue_many, Jobs.count, transports.send,
    hipq.backoff, hipq.fixed, hipq.schedule, hipq.limit, hipq.per_lane, hipq.share, hipq.rate, hipq.window, hipq.aged,
]  # fmt: skip


@pytest.mark.parametrize("function", EXPLAINED, ids=lambda one: one.__qualname__)
def test_every_parameter_is_explained(function: object) -> None:
    names, explained = python_api.described_parameters(function)
    assert names - explained == set()


def test_nothing_internal_is_told_of() -> None:
    assert "object at 0x" not in API
    assert not re.search(r"^#### `\w+\._", API, flags=re.MULTILINE)
    for name, hidden in python_api.INTERNAL.items():
        owner = next(import_module(m) for part in python_api.PARTS.values() for m in part if name in part[m])
        missing = {one for one in hidden if not hasattr(getattr(owner, name), one)}
        assert missing <= {"spec", "queue", "operator", "find_type"}, f"{name} has no {missing} any more"


def test_every_command_and_every_option_is_there() -> None:
    from hipq.cli.main import cli

    assert [path for path in paths(cli, "hipq") if f"`{path}`" not in COMMANDS] == []
    assert COMMANDS.count("--until-empty") > 0


def test_every_route_is_there() -> None:
    page = http_routes.page()
    assert [one for one in ROUTES if f"### `{one.method.upper()} {one.path}`" not in page] == []


def test_the_picture_of_the_states_has_every_move() -> None:
    text = (ROOT / "docs/states.md").read_text()
    moves = re.findall(r"^    (\S+) --> (\S+)$", text, flags=re.MULTILINE)
    drawn = states.drawn(text)
    assert "mermaid" not in drawn
    assert drawn.count('class="move"') == len(moves)


def test_every_page_is_in_the_nav_and_nothing_else_is() -> None:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)["nav"]
    there = {name for name, _ in pages() if not name.startswith("source/")}
    assert there - set(leaves(nav)) == set(), "add these to mkdocs.yml"
    assert set(leaves(nav)) - there == set(), "mkdocs.yml has these, and they are no pages"
    assert len(leaves(nav)) == len(there)


def leaves(nav: object) -> list[str]:
    match nav:
        case str():
            return [nav]
        case dict():
            return [leaf for one in nav.values() for leaf in leaves(one)]
        case list():
            return [leaf for one in nav for leaf in leaves(one)]
    return []


def test_llms_txt_has_every_page() -> None:
    text = (ROOT / "llms.txt").read_text()
    links = set(re.findall(r"\]\(([^)]+)\)", text))
    assert set(PAGES) - links == set(), "add these to llms.txt"
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_links_stay_inside_the_site() -> None:
    written = {name for name, _ in pages()}
    assert {uri(path) for path in ROOT_PAPERS} | set(MADE) <= written
    assert {uri(path) for path in linked_sources()} <= written
    text = rewritten("[a](../README.md#handlers) [b](../src/hipq/app.py) [c](https://x.example/y) [d](#e)", "docs/a.md")
    assert text == (
        "[a](project/readme.md#handlers) [b](source/src/hipq/app.py.md) [c](https://x.example/y) [d](#e)"
    )  # fmt: skip
    code = "```python\n[f](../README.md)\n```\n"
    assert rewritten(code, "docs/a.md") == code
    assert len(PAPERS) > 50
