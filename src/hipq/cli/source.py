"""What the source of a module says: it is read, and none of it runs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from hipq import config


def calls(app: str) -> Iterator[tuple[ast.Call, str]]:
    """The calls in a module's source, each with the name of what is called."""
    for node in ast.walk(parsed(app)):
        if isinstance(node, ast.Call):
            yield node, _called(node)


def parsed(app: str) -> ast.Module:
    return ast.parse(_source(app.partition(":")[0]))


def variables(module: str, of: str) -> list[str]:
    """The variables of a module to which `of(...)` is assigned."""
    given = [node for node in parsed(module).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    made = [node for node in given if isinstance(node.value, ast.Call) and _called(node.value) == of]
    targets = [one for node in made for one in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _called(call: ast.Call) -> str:
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name


def _source(module: str) -> str:
    file = config.read().file
    for folder in (Path.cwd(), *([file.parent] if file else []), *map(Path, sys.path)):
        path = folder.joinpath(*module.split("."))
        for name in (path.with_suffix(".py"), path / "__init__.py"):
            if name.is_file():
                return name.read_text()
    return ""
