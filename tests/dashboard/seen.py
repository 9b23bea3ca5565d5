"""A page as a test looks at it: visited without a server, its HTML parsed."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hipq.dashboard.site import Site
from hipq.dashboard.visit import Reply, Role, Visit, Visitor

_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


class Element:
    """An element: its name, its attributes, and all that is in it."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.inside: list[Element | str] = []

    @property
    def text(self) -> str:
        """All text in it, with single spaces."""
        parts = [part if isinstance(part, str) else part.text for part in self.inside]
        return " ".join(" ".join(parts).split())

    def all(self, name: str = "", **attributes: str) -> list[Element]:
        """The elements in it that have this name and these attributes; `class_` asks for one of the classes."""
        found = []
        for part in self.inside:
            if isinstance(part, Element):
                if part._is(name, attributes):
                    found.append(part)
                found += part.all(name, **attributes)
        return found

    def one(self, name: str = "", **attributes: str) -> Element:
        (found,) = self.all(name, **attributes)
        return found

    def rows(self) -> list[list[str]]:
        """The texts of a table's cells, row by row, without its head."""
        body = self.one("tbody")
        return [[cell.text for cell in row.all("td")] for row in body.all("tr")]

    def _is(self, name: str, attributes: dict[str, str]) -> bool:
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        classes = self.attributes.get("class", "").split()
        return name in ("", self.name) and all(
            value in classes if key == "class" else self.attributes.get(key) == value for key, value in wanted.items()
        )


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        while len(self.open) > 1 and self.open.pop().name != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def parsed(reply: Reply) -> Element:
    """The page, which must be one."""
    assert reply.type.startswith("text/html")
    parser = _Parser()
    parser.feed(reply.body.decode())
    return parser.open[0]


def go(site: Site, url: str, role: Role = Role.ADMIN, form: dict[str, Any] | None = None) -> Reply:
    """What a visitor of this role gets at a URL; with a form, it is sent there."""
    where = urlsplit(url)
    form = None if form is None else {"csrf": "token", **form}
    sent = {name: [value] if isinstance(value, str) else list(value) for name, value in (form or {}).items()}
    visit = Visit(
        method="GET" if form is None else "POST", path=where.path, base="", headers={}, form=sent,
        query=parse_qs(where.query, keep_blank_values=True), visitor=Visitor("ann", role), csrf="token",
    )  # fmt: skip
    return site.reply(visit)


def see(site: Site, url: str, role: Role = Role.ADMIN) -> Element:
    """The main part of a page that is there."""
    reply = go(site, url, role)
    assert reply.status == 200, reply.body.decode()
    return parsed(reply).one("main")


def do(site: Site, url: str, form: dict[str, Any], role: Role = Role.OPERATE) -> str:
    """Send a form, and return where it leads to."""
    reply = go(site, url, role, form)
    assert reply.status == 303, reply.body.decode()
    return dict(reply.headers)["location"]
