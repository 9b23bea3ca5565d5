"""axe-core in a browser: what a page makes hard for people who cannot see it, or cannot use a mouse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from tests.daemon.browser import Browser
from tests.dashboard.looks import DARK, LIGHT, PHONE, Look

_FOUND: Final = """axe.run(%s).then(({violations}) => violations
    .filter(one => ["serious", "critical"].includes(one.impact))
    .flatMap(one => one.nodes.map(node => `${one.id} at ${node.target}: ${node.failureSummary}`)))"""
_COLOURS: Final = ("color-contrast", "link-in-text-block")
"""The rules that depend on the light."""
_ROOM: Final = ("scrollable-region-focusable", "meta-viewport")
"""Those that depend on the screen."""
_RULES: Final = {LIGHT: (), DARK: _COLOURS, PHONE: _ROOM}
"""Only by day a page is looked at for everything: the other rules find the same in each light and on each screen."""
_UNFOLDED: Final = "document.querySelectorAll('details').forEach(one => { one.open = true; })"


@cache
def _script() -> str:
    return files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")


def barriers(browser: Browser, rules: Sequence[str] = ()) -> list[str]:
    """The serious and critical ones of the page as it is shown. `rules`: by these only."""
    browser.evaluate(f"(() => {{ {_script()} }})()")  # from outside: the page's policy would not let it in
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": [*rules]}
    found: list[str] = browser.evaluate(_FOUND % json.dumps(options))
    return found


def too_wide(browser: Browser, look: Look) -> list[str]:
    width = browser.evaluate("document.documentElement.scrollWidth")
    return [f"is {width} pixels wide"] if width > look.width else []


def faults_of(browser: Browser, look: Look) -> list[str]:
    """What is wrong with the page as it is shown: what the browser complains of, barriers, and what is too wide."""
    browser.evaluate(_UNFOLDED)
    found = [*browser.complaints, *barriers(browser, _RULES[look]), *too_wide(browser, look)]
    browser.complaints.clear()
    return found
