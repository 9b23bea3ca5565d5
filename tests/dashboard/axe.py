"""axe-core in a browser: what a page makes hard for people who cannot see it, or cannot use a mouse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from tests.daemon.browser import Browser

_FOUND: Final = """axe.run(%s).then(({violations}) => violations
    .filter(one => ["serious", "critical"].includes(one.impact))
    .flatMap(one => one.nodes.map(node => `${one.id} at ${node.target}: ${node.failureSummary}`)))"""
COLOURS: Final = ("color-contrast", "link-in-text-block")
"""The rules that depend on the light."""
ROOM: Final = ("scrollable-region-focusable", "meta-viewport")
"""Those that depend on the screen."""


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
