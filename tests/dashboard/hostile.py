"""Texts that a tenant or a sender of answers might hope to see as markup. Whatever they would make has `xss` in its
name."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

TEXTS: Final = (
    "<xss-tag onxss=1>",
    "</td></main></body><xss-tag>",
    "</script><script data-xss>xss()</script>",
    "</title><script data-xss>",
    "</textarea><xss-tag>",
    "--><xss-tag><!--",
    "<![CDATA[<xss-tag>]]>",
    '" onxss="1" data-xss="',
    "' onxss='1' data-xss='",
    "x onxss=1 data-xss=2",
    '"><img src=xss onxss=1>',
    "`onxss=1`><xss-tag>",
    "&lt;xss-tag&gt; &#60;xss-tag&#62; &quot; onxss=1",
    "javascript:xss()",
    "JaVaScRiPt:xss()",
    "java\tscript:xss()",
    "data:text/html,<xss-tag>",
    "//xss.example/",
    "https://xss.example/",
    "\\\\xss.example\\",
    "{{ 7 * 7 }}{% raw %}<xss-tag>{{ site.apps }}",
    "${7*7}#{7*7}<%= 7 %>",
    "\u202e<xss-tag>\u202c\u2066\u200f",
    "\x01\x07\x1b[31m\x7f\x85\u2028<xss-tag>\r\n\t",
    "+ADw-xss-tag+AD4-",
    "\xbc\xbexss-tag\uff1cxss-tag\uff1e",
    "%3Cxss-tag%3E%22 onxss%3D1",
    "hx-get=//xss.example hx-on:load=xss()",
    "<xss-tag " * 5_000,
)


class Markup(HTMLParser):
    """What a browser would make of a page, as far as a parser of Python's sees it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._in_script = tag in ("script", "style")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._in_script = False

    def handle_data(self, data: str) -> None:
        (self.scripts if self._in_script else self.text).append(data)

    def handle_comment(self, data: str) -> None:
        self.text.append(f"<!--{data}-->")


def faults(html: str) -> list[str]:
    """What is in a page that no template of ours has."""
    page = Markup(html)
    found = [f"inline script: {text!r}" for text in page.scripts if text.strip()]
    found += [f"comment: {text!r:.80}" for text in page.text if text.startswith("<!--")]
    for tag, attributes in page.tags:
        if "xss" in tag or tag in _NEVER:
            found.append(f"<{tag}>")
        for name, value in attributes.items():
            if "xss" in name or name.startswith(("on", "hx-on")) or name in ("style", "srcdoc"):
                found.append(f"<{tag} {name}={value!r:.80}>")
            if name in _URLS and not _is_ours(value):
                found.append(f"<{tag} {name}={value!r:.80}>")
    return found


_NEVER: Final = ("iframe", "object", "embed", "base", "style", "template", "noscript", "math", "portal")
_URLS: Final = (
    "href",
    "src",
    "action",
    "formaction",
    "poster",
    "cite",
    "background",
    "xlink:href",
    "hx-get",
    "hx-post",
)


def _is_ours(url: str) -> bool:
    """A page of the dashboard, a place on this page, or a site that a template names."""
    return url.startswith(("#", "?", "data:image/")) or (url.startswith("/") and not url.startswith(("//", "/\\"))) or (
        url.startswith("https://") and "xss" not in url
    )  # fmt: skip
