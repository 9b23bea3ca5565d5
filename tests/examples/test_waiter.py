"""examples/waiter: what was sent a month ahead arrives, in order, with two commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.examples.running import PATIENCE, command, run, started


def test_what_is_due_in_a_month_arrives_and_the_rest_waits(tmp_path: Path) -> None:
    with started("waiter/cloud.py", tmp_path) as cloud:
        assert cloud.stdout is not None
        assert cloud.stderr is not None
        said = cloud.stdout.readline()
        assert said, cloud.stderr.read()
        try:
            printed = run("waiter/reminders.py", tmp_path, said.split()[-1])
        finally:
            cloud.terminate()
            cloud.communicate(timeout=PATIENCE)
    assert len(re.findall(r"^waits until \d{4}-\d\d-\d\d: ", printed, flags=re.MULTILINE)) == 3
    assert printed.splitlines()[-4:] == [
        "ann: mails welcome; invoices [1, 2, 3]",
        "bob: mails come back, welcome; invoices [1, 2, 3]",
        "eve: mails welcome; invoices [1, 2, 3]",
        "it adds up",
    ]


def test_a_server_that_is_not_there_is_said_in_one_sentence(tmp_path: Path) -> None:
    ran = subprocess.run(
        command("waiter/reminders.py", "http://127.0.0.1:1"), cwd=tmp_path, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert ran.returncode == 1
    assert re.fullmatch(r".*nobody listens at 127.0.0.1:1 .*\n", ran.stderr)
