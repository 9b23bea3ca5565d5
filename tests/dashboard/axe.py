"""axe-core in a browser: what a page makes hard for people who cannot see it, or cannot use a mouse."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from tests.daemon.browser import Browser

_FOUND: Final = """axe.run({resultTypes: ["violations"]}).then(({violations}) => violations
    .filter(one => ["serious", "critical"].includes(one.impact))
    .flatMap(one => one.nodes.map(node => `${one.id} at ${node.target}: ${node.failureSummary}`)))"""


@cache
def _script() -> str:
    return files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")


def barriers(browser: Browser) -> list[str]:
    """The serious and critical ones of the page as it is shown."""
    browser.evaluate(f"(() => {{ {_script()} }})()")  # from outside: the page's policy would not let it in
    found: list[str] = browser.evaluate(_FOUND)
    return found
