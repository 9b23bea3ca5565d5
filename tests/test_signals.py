"""Signals that come together are one; those that are meant count, however many there were before."""

from __future__ import annotations

import pytest

from hipq.signals import TOGETHER, each_meant


def test_those_at_one_moment_are_one_and_a_held_key_is_many(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = 100.0, 0

    def stop() -> None:
        nonlocal told
        told += 1

    monkeypatch.setattr("hipq.signals.time.monotonic", lambda: now)
    heard = each_meant(stop)
    heard(15, None)
    heard(2, None)
    assert told == 1
    for _ in range(10):
        now += TOGETHER * 0.75
        heard(2, None)
    assert told == 1 + 5
