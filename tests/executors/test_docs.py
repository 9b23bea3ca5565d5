"""docs/handlers-in-other-languages.md: its handlers run, and its tables say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from hipq.sandbox import ContextPool, ContextSettings
from hipq.sandbox.handler import MOST_DATA
from hipq.sandbox.output import MOST_LINE, MOST_LOG, MOST_SPAWNED
from tests.executors.running import LANGUAGES, handler, run

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "handlers-in-other-languages.md").read_text()
FENCES = {"python": "python", "node": "js", "php": "php", "shell": "sh"}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_four_handlers_do_the_same(contexts: ContextPool, lang: str) -> None:
    (body,) = re.findall(rf"```{FENCES[lang]}\n(.*?)```", PAGE, flags=re.DOTALL)
    ran = run(contexts, handler(lang, body), b'{"id":"17","amount":5}', b'{"id":"18","amount":5000}')
    good, bad = ran.reports
    assert (good.status, good.spawned) == (200, [("receipt", b"17")])
    assert good.data.replace(b" ", b"") == b'{"charged":5}'
    assert (bad.status, bad.data, bad.spawned) == (422, b"too much", [])


def test_the_numbers_it_names_are_the_code_s() -> None:
    assert (MOST_DATA, MOST_LINE, MOST_LOG, MOST_SPAWNED) == (16 << 20, 1 << 20, 8 << 10, 10_000)
    for said in ("16 MB", "A line may have 1 MB", "the last 8 KB", "10,000 others"):
        assert said in " ".join(PAGE.split())


def test_every_limit_is_in_the_page_on_the_sandbox() -> None:
    page = (DOCS / "sandbox.md").read_text()
    inside = {"trust", "interpreters", "start_seconds", "http_together", "variables", "secrets", "hosts", "modules"}
    for name in {field.name for field in msgspec.structs.fields(ContextSettings)} - inside:
        assert f"| `{name}` |" in page, name
    usual = ContextSettings()
    assert (usual.memory >> 20, usual.cpu, usual.processes, usual.files) == (512, 600, 64, 256)
    assert (usual.scratch >> 20, usual.output >> 20, usual.idle_seconds) == (64, 16, 60)
    assert (usual.most_tasks, usual.most_contexts) == (10_000, 32)
