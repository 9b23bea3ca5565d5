"""docs/waiter.md: its examples run."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from hipq.waiter.item import HASH, INDEX, RANGE, TIME
from tests.brokers.aws import CREDENTIALS, REGION, OwnAws
from tests.docs.test_readme import ROOT, blocks

GUIDE = "docs/waiter.md"


def test_sending_polling_and_what_waits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with OwnAws() as aws:  # of its own: the guide's queues have names that others may use too
        for name, value in {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": aws.url}.items():
            monkeypatch.setenv(name, value)
        sqs = boto3.session.Session().client("sqs")
        sqs.create_queue(QueueName="mailers")
        sqs.create_queue(QueueName="reports.fifo", Attributes={"FifoQueue": "true"})
        there: dict[str, Any] = {}
        for language, block in blocks(GUIDE):
            if language == "python" and "@waiter.handle" not in block:
                exec(compile(block, GUIDE, "exec"), there)
        said = capsys.readouterr().out
        assert "dynamodb" in said
        assert "0 0 []" in said
        assert [one.body for one in there["waiter"].list("reports.fifo")] == ["monthly"]
        assert there["waiter"].list("mailers") == []


def test_it_names_the_keys_that_the_code_has() -> None:
    text = (ROOT / GUIDE).read_text()
    for name in (HASH, RANGE, TIME, INDEX):
        assert f"`{name}`" in text
