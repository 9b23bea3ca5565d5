"""The parts of a rendered page that are kept up to date in browsers: its elements with an `id` and `data-live`."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

_TAG: Final = re.compile(r"""<!--.*?-->|<(/?)([a-zA-Z][\w-]*)((?:[^>"']++|"[^"]*"|'[^']*')*+)>""", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r'([^\s=/]+)(?:="([^"]*)")?')
_MOVING: Final = re.compile(r"(<time\b[^>]*>|<\w+\b[^>]*\sdata-until\b[^>]*>)[^<]*")
"""Browsers keep these texts moving by themselves."""


def live_elements(html: str) -> dict[str, str]:
    """HTML by id, the outer ones only. An element ends where as many of its tag have ended as have begun: what else is
    in it need not be closed."""
    found: dict[str, str] = {}
    name, begin, depth, called = "", 0, 0, ""
    for tag in _TAG.finditer(html):
        if depth:
            if tag[2] == name:
                depth += -1 if tag[1] else 1
                if not depth:
                    found[called] = html[begin : tag.end()]
        elif tag[3] and "data-live" in tag[3] and not tag[1]:
            attributes = dict(_ATTRIBUTE.findall(tag[3]))
            if "data-live" in attributes and attributes.get("id"):
                name, begin, depth, called = tag[2], tag.start(), 1, unescape(attributes["id"])
    return found


def compared(html: str) -> str:
    """An element without what does not count as a change."""
    return _MOVING.sub(r"\1", html)
