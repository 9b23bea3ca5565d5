"""`python -m website.check FOLDER` looks at a built site: every link leads to a page and a place on it, and nothing is
loaded from another host. Exit 1, with a line for each fault, if that is not so."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LOADS: Final = {"img": "src", "script": "src", "source": "src", "iframe": "src", "video": "src", "link": "href"}
"""Elements that make a browser load something, and the attribute that says what."""
_NOT_LOADED: Final = {"canonical", "prev", "next", "alternate", "edit"}
"""What a `link` may be to without being loaded."""


class Page(HTMLParser):
    """What a page links to, what it loads, and the places on it that a link may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        if "mermaid" in found.get("class", "").split():  # the theme loads what draws it from another host
            self.loads.append("https://unpkg.com/mermaid")
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if (name := _LOADS.get(tag)) in found and not _NOT_LOADED & set(found.get("rel", "").split()):
            self.loads.append(found[str(name)])


def faults(folder: Path) -> Iterator[str]:
    pages = {file: Page(file.read_text()) for file in sorted(folder.rglob("*.html"))}
    for file, page in pages.items():
        name = file.relative_to(folder)
        for url in page.loads:
            if _is_foreign(url):
                yield f"{name}: loads {url}"
            elif (there := _file(url, file, folder)) and not there.exists():
                yield f"{name}: loads {url}, which is not there"
        for url in page.links:
            if not _is_foreign(url) and (said := _broken(url, file, folder, pages)):
                yield f"{name}: {said}"
    for file in sorted(folder.rglob("*.css")):
        for url in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", file.read_text()):
            yield f"{file.relative_to(folder)}: loads {url}"


def _is_foreign(url: str) -> bool:
    return url.startswith("//") or urlsplit(url).scheme not in ("", "data")


def _file(url: str, origin: Path, folder: Path) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme == "data" or not parts.path:
        return None
    path = unquote(parts.path)
    return folder / path[1:] if path.startswith("/") else (origin.parent / path).resolve()


def _broken(url: str, origin: Path, folder: Path, pages: dict[Path, Page]) -> str:
    there = _file(url, origin, folder) or origin
    if there.is_dir():
        there = there / "index.html"
    if not there.exists():
        return f"a link leads to {url}, which is not there"
    place = unquote(urlsplit(url).fragment)
    if place and there in pages and place not in pages[there].places:
        return f"a link leads to {url}, where there is no such place"
    return ""


def main() -> int:
    found = list(faults(Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "every link leads somewhere, and nothing is loaded from another host")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
