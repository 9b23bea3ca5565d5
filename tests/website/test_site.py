"""The whole site, as `make docs` builds it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from website.__main__ import write
from website.check import faults
from website.repository import ROOT


def test_it_is_built_without_a_warning_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    write(tmp_path / ".site/pages")
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text())
    zensical = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    built = subprocess.run(zensical, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    assert list(faults(tmp_path / ".site/html")) == []
    pages = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert len(list((tmp_path / ".site/html").rglob("*.html"))) > len(pages) > 50
