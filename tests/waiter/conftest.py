"""An AWS of moto's for the waiter's tests."""

from __future__ import annotations

import pytest

from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint
from tests.waiter.cloud import Cloud


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    for name, value in {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    return Cloud(aws_endpoint())
