"""docs/waiter.md, the consumer and the command line: its program handles messages, its commands print what it says."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests import processes
from tests.brokers.aws import CREDENTIALS, REGION, OwnAws
from tests.cli.conftest import eventually
from tests.docs.test_readme import blocks, console

GUIDE = "docs/waiter.md"
COMMANDS = 4


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of its own: the guide's queues have names that others may use too."""
    with OwnAws() as aws:
        for name, value in {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": aws.url}.items():
            monkeypatch.setenv(name, value)
        client = boto3.session.Session().client("sqs")
        client.create_queue(QueueName="mailers")
        client.create_queue(QueueName="reports.fifo", Attributes={"FifoQueue": "true"})
        yield client


def hipq(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "hipq.cli.main", "waiter", *arguments]
    processes.run(command, cwd=folder, check=True, capture_output=True, timeout=120)


@pytest.mark.usefixtures("sqs")
def test_its_commands_print_what_it_says(tmp_path: Path) -> None:
    hipq(tmp_path, "create-table", "mailers")
    assert sum(console(block, tmp_path) for language, block in blocks(GUIDE) if language == "console") == COMMANDS


def test_its_program_handles_messages(tmp_path: Path, sqs: Any) -> None:
    (program,) = [block for language, block in blocks(GUIDE) if language == "python" and "@waiter.handle" in block]
    assert re.match(r"# post\.py\n", program)
    (tmp_path / "post.py").write_text(program)
    mailers, reports = (sqs.get_queue_url(QueueName=name)["QueueUrl"] for name in ("mailers", "reports.fifo"))
    sqs.send_message(QueueUrl=mailers, MessageBody='{"to": "zoe"}')
    sqs.send_message(QueueUrl=reports, MessageBody="monthly", MessageGroupId="accounts", MessageDeduplicationId="1")
    printed = tmp_path / "printed"
    with printed.open("wb") as output:
        command = [sys.executable, "-u", "-m", "hipq.cli.main", "waiter", "work", "post:waiter", "--wait", "1"]
        process = processes.Popen(command, cwd=tmp_path, stdout=output, stderr=output)
    try:
        # Two handlers may print at once, and what they print mixes.
        eventually(lambda: all(one in printed.read_text() for one in ("mail to", "zoe", "accounts", "monthly")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, printed.read_text()
    finally:
        process.kill()
        process.wait()
