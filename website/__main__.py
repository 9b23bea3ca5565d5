"""`python -m website FOLDER` writes all pages of the site into FOLDER: those of docs/, those made from the code, and
files of the repository that a page links to. Whatever builds the site from these needs no plugin for it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from website import commands, http_routes, python_api, states
from website.repository import PAPERS, ROOT, links, path_of, rewritten, source_page, uri

MADE: Final[dict[str, Callable[[], str]]] = {
    "python-api.md": python_api.page,
    "commands.md": commands.page,
    "http-routes.md": http_routes.page,
}
"""Pages that are made from the code each time."""


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page."""
    for file in sorted(ROOT.glob("docs/*.md")):
        path = str(file.relative_to(ROOT))
        yield uri(path), states.drawn(rewritten(file.read_text(), path))
    for path in PAPERS:
        text = rewritten((ROOT / path).read_text(), path)
        yield uri(path), text if path.endswith(".md") else f"# {path.title()}\n\n```text\n{text}```\n"
    for path in linked_sources():
        yield uri(path), source_page(path)
    for name, page in MADE.items():
        yield name, page()


def linked_sources() -> list[str]:
    """Files and folders of the repository to which a page links, and which are no pages themselves."""
    found = set[str]()
    for page in (*ROOT.glob("docs/*.md"), *(ROOT / path for path in PAPERS)):
        origin = str(page.relative_to(ROOT))
        found |= {path_of(origin, target) for target in links(page.read_text())}
    return sorted(path for path in found if uri(path).startswith("source/") and (ROOT / path).exists())


def write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in pages():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shutil.copytree(ROOT / "docs/images", folder / "images")
    for file in (*ROOT.glob("docs/*.svg"), *ROOT.glob("docs/*.json")):
        shutil.copy(file, folder)
    shutil.copy(Path(__file__).parent / "site.css", folder)
    shutil.copy(ROOT / "src/hipq/dashboard/static/icon.svg", folder)
    index = rewritten((ROOT / "llms.txt").read_text(), "llms.txt")
    (folder / "llms.txt").write_text(index.replace(".md)", ".html)"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
