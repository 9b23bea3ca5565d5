"""docs/glossary.md: every file and name in it exists, and words that were given up are not in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| ([^|]+) \| [^|]+ \| `(src/[^`]+)`(?: `(\w+)`)? \|$", (ROOT / "docs/glossary.md").read_text(), re.M
)
RETIRED = re.compile(
    r"(Hands|Hunger|Bell|Nursery|Doorkeeper|"
    r"[Ss]ysid|[Jj]udging|[Cc]alling[ _]?[Oo]ff|[Ss]trand|[Gg]lance|[Gg]limpsed|[Hh]ungry|[Ll]uggage)s?(?![a-z])"
)
"""Words that were given up, also as a part of a name: `TestGlance`, `pick_strand`."""
MAY_HAVE_THEM = ("src/hipq/components.py", "tests/components/", "tests/docs/test_glossary.py")
"""The functions of `components.py` are named by the interface that it implements, `reserve_sysid` among them."""


def names_in(path: Path) -> set[str]:
    """The classes, functions, fields and constants that a file defines."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    return found


@pytest.mark.parametrize(("word", "file", "name"), ROWS, ids=[word for word, _, _ in ROWS])
def test_each_word_is_where_the_glossary_says(word: str, file: str, name: str) -> None:
    path = ROOT / file
    assert path.is_file(), f"{word}: there is no {file}"
    assert not name or name in names_in(path), f"{word}: {file} has no {name}"


def test_every_row_was_read_and_no_word_is_there_twice() -> None:
    rows = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")]
    assert len(ROWS) == len([row for row in rows if not row.startswith("| word |")]) >= 30
    assert len({word for word, _, _ in ROWS}) == len(ROWS)


def test_retired_words_are_not_in_the_code() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("src", "tests", "bench", "examples")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".sql") and not str(path.relative_to(ROOT)).startswith(MAY_HAVE_THEM)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if RETIRED.search(line)
    ]
    assert not found, "\n".join(found)
