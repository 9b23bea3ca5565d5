"""uv.lock: from the public index only, and of what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]


def test_only_the_public_index_is_named() -> None:
    text = (ROOT / "uv.lock").read_text()
    hosts = {urlsplit(url).netloc for url in re.findall(r'[a-z+]+://[^"\s]+', text)}
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


def test_it_is_of_these_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (locked,) = (one for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"] if one["name"] == "hipq")
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.split(r"[\[<>=;\s]", one)[0].lower() for one in wanted} - {"hipq"}
    assert {one["name"] for one in locked["metadata"]["requires-dist"]} == names, "run: uv lock"
