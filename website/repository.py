"""Where a file of the repository is on the site, and links that lead there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = "docs"
PAPERS: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md", "LICENSE",
                 "examples/README.md", "examples/transports/README.md")  # fmt: skip
"""Files beside `docs/` that are pages of the site; every other file that a page links to is shown as its source."""
_LINK: Final = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#]+)(?P<fragment>#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^(```.*?^```$)", flags=re.DOTALL | re.MULTILINE)


def uri(path: str) -> str:
    """The address, in MkDocs' sources, of a file or folder of the repository."""
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if path in PAPERS:
        return f"project/{path.removesuffix('.md').replace('/', '-').lower()}.md"
    return f"source/{path}.md"


def links(text: str) -> list[str]:
    """The targets of relative links, outside of blocks of code."""
    found = _LINK.findall(_FENCE.sub("", text))
    return [target for _, target, _ in found if not re.match(r"[a-z]+:", target)]


def path_of(origin: str, target: str) -> str:
    """The file of the repository that a link in the file `origin` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))


def rewritten(text: str, origin: str) -> str:
    """The text of a file of the repository, with links as its page on the site has them."""
    here = posixpath.dirname(uri(origin))

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            return match[0]
        found = posixpath.relpath(uri(path_of(origin, target)), here or ".")
        return f"{match['before']}{found}{match['fragment'] or ''})"

    return outside_code(text, lambda part: _LINK.sub(link, part))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def source_page(path: str) -> str:
    """A page that shows a file of the repository, or says what is in a folder."""
    found = ROOT / path
    head = f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    if found.is_dir():
        return (
            head + "\n".join(f"- `{one.name}`" for one in sorted(found.iterdir()) if one.name != "__pycache__") + "\n"
        )
    language = {".py": "python", ".sql": "sql", ".json": "json", ".yml": "yaml"}.get(found.suffix, "text")
    return f"{head}``````{language}\n{found.read_text()}``````\n"
