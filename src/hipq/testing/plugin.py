"""The fixtures pytest finds by itself once hipq is installed. It loads this in every project: nothing heavy up here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Unpack

import pytest

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.testing.under_test import Harness, HarnessFactory, HarnessOptions


@pytest.fixture
def hipq_harness() -> Iterator[HarnessFactory]:
    """`shop = hipq_harness(app)`: an application under test until the test ends; see `hipq.testing.harness`."""
    with ExitStack() as stack:

        def make(*apps: Hipq, **options: Unpack[HarnessOptions]) -> Harness:
            from hipq.testing.under_test import harness

            return stack.enter_context(harness(*apps, **options))

        yield make
