"""docs/clients.md: the recipes for curl, one after the other in one shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.daemon.api_serving import site
from tests.docs.test_readme import blocks


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed here")
def test_every_recipe_runs(tmp_path: Path) -> None:
    owner = site().tenant()
    (tmp_path / "token").write_text(owner.token)
    recipes = [text for language, text in blocks("docs/clients.md") if language == "sh"]
    assert len(recipes) == 8
    script = "set -eu -o pipefail\n" + "echo; echo --end--\n".join(recipes)
    script = script.replace("127.0.0.1:8000", f"127.0.0.1:{owner.daemon.port}").replace("acme", owner.name)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _, handler, result, once, lines, looks, answer, ready = (part.strip() for part in done.stdout.split("--end--\n"))
    assert '"lang":"python"' in handler
    assert result == "HELLO"
    assert once.startswith('{"ids":')
    assert lines == ""
    for word in ('"queues":', '"jobs":', '"reason":', '"code":"cancelled"'):
        assert word in looks
    assert '"answer":"buffered"' in answer
    assert '"accepts":true' in ready
