"""examples/README.md: it lists every example, and what it says can be typed."""

from __future__ import annotations

import ast
import re

import pytest

from tests.examples.running import EXAMPLES

README = (EXAMPLES / "README.md").read_text()
FILES = sorted(path for path in EXAMPLES.rglob("*.py") if "__pycache__" not in path.parts)
STARTED = sorted(set(re.findall(r"`python examples/([\w/]+\.py)`", README)))


def test_its_links_lead_somewhere_and_every_example_has_one() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    assert all((EXAMPLES / link).is_file() for link in links)
    assert {link.split("/")[0] for link in links} == {path.relative_to(EXAMPLES).parts[0] for path in FILES}


@pytest.mark.parametrize("example", STARTED)
def test_each_example_says_in_its_first_lines_how_to_start_it(example: str) -> None:
    said = ast.get_docstring(ast.parse((EXAMPLES / example).read_text()))
    assert said
    assert f"python examples/{example}" in said


def test_no_example_uses_anothers_code() -> None:
    for path in FILES:
        names = {other.stem for other in FILES if other.parent != path.parent}
        for node in ast.walk(ast.parse(path.read_text())):
            found = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not names & {name.split(".")[0] for name in found}, path
