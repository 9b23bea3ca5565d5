"""What looks at the built site: it finds a dead link, a place that is not there, and what comes from another host."""

from __future__ import annotations

from pathlib import Path

import pytest
from website.check import faults

GOOD = '<h1 id="top">hipq</h1><a href="https://example.com/">out</a><link rel="canonical" href="https://x.example/">'


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ('<a href="other.html">x</a>', "a link leads to other.html, which is not there"),
        ('<a href="#bottom">x</a>', "a link leads to #bottom, where there is no such place"),
        ('<a href="index.html#bottom">x</a>', "a link leads to index.html#bottom, where there is no such place"),
        ('<script src="https://cdn.example/mermaid.js"></script>', "loads https://cdn.example/mermaid.js"),
        ('<link rel="stylesheet" href="//fonts.example/css">', "loads //fonts.example/css"),
        ('<pre class="mermaid"><code>a --> b</code></pre>', "loads https://unpkg.com/mermaid"),
        ('<img src="gone.png">', "loads gone.png, which is not there"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, bad: str, said: str) -> None:
    (tmp_path / "index.html").write_text(GOOD + bad)
    assert list(faults(tmp_path)) == [f"index.html: {said}"]


def test_a_style_that_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "site.css").write_text("@import url(https://fonts.example/a.css);")
    assert list(faults(tmp_path)) == ["site.css: loads https://fonts.example/a.css"]


def test_a_good_site_has_none(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(GOOD + '<a href="#top">up</a><img src="data:image/png;base64,AA">')
    assert list(faults(tmp_path)) == []
