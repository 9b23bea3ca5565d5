"""docs/deploying-handlers.md: what a stranger pastes is what happens, at a real daemon; its table has every setting."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

from hipq.client import manifest
from hipq.sandbox.bubblewrap import why_no_sandbox
from hipq.sandbox.policy import MOST_VALUE
from hipq.sandbox.secrets import LEAST
from tests.daemon.test_api_docs import commands, environment, fits
from tests.docs.test_readme import ROOT, blocks

PAGE = "docs/deploying-handlers.md"
TYPED = 18


def test_its_session_runs(tmp_path: Path) -> None:
    typed: list[tuple[str, list[str]]] = []
    for language, block in blocks(PAGE):
        if language == "console":
            typed += commands(block)
        elif name := re.match(r"# (charge/\S+)\n", block):
            (tmp_path / name[1]).parent.mkdir(exist_ok=True)
            (tmp_path / name[1]).write_text(block.partition("\n")[2])
    assert len(typed) == TYPED
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    trust = " --trust-handlers" if why_no_sandbox() else ""
    script = "".join(f"{text}\necho '--end--'\n" for text, _ in typed)
    script = script.replace("hipq serve", f"hipq serve --port {port}{trust}").replace(
        "127.0.0.1:8000", f"127.0.0.1:{port}"
    )
    known = environment(tmp_path) | {"HIPQ_DAEMON_URL": f"http://127.0.0.1:{port}"}
    done = subprocess.run(
        ["bash", "-c", f"trap 'kill -9 %1' EXIT\n{script}"], cwd=tmp_path, env=known, capture_output=True, text=True,
        check=False, timeout=200,
    )  # fmt: skip
    printed = [part.strip("\n").splitlines() for part in done.stdout.split("--end--\n")]
    for (text, shown), came in zip(typed, printed, strict=False):
        assert fits(shown, came), (text, came, done.stderr[-2000:])
    assert len(printed) == len(typed) + 1


def test_no_setting_is_missing() -> None:
    page = (ROOT / PAGE).read_text()
    for name in manifest._Manifest.__struct_fields__:
        assert re.search(rf"^\|.*`\[?{name}\]?`.*\|", page, flags=re.MULTILINE), name
    for name in manifest._Retry.__struct_fields__:
        assert f"`{name}`" in page, name
    assert f"{LEAST} to {MOST_VALUE:,}" in page
