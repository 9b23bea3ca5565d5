"""docs/dashboard-pages.md has a picture of every page, in every look."""

from __future__ import annotations

import re
from pathlib import Path

from hipq.daemon.dashboard.pages import pages_of
from hipq.dashboard.site import ROUTES
from tests.dashboard.looks import LOOKS
from tests.dashboard.test_every_page_in_browser import NO_PAGES

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_has_its_pictures() -> None:
    page = (DOCS / "dashboard-pages.md").read_text()
    of_daemons = {route.pattern for route in pages_of(None).routes}  # type: ignore[arg-type]
    patterns = {route.pattern for route in ROUTES if route.method == "GET"} - NO_PAGES | of_daemons
    assert patterns <= set(re.findall("^## `(.+)`$", page, re.MULTILINE))
    pictures = re.findall(r"!\[(\w+)\]\(images/pages/([\w-]+\.webp)\)", page)
    assert {name for _, name in pictures} == {one.name for one in (DOCS / "images/pages").iterdir()}
    assert {look for look, _ in pictures} == {look.name for look in LOOKS}
    assert len(pictures) == len(LOOKS) * page.count("| by day |")
