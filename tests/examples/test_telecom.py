"""examples/telecom: the network is never asked for more than it bears, by its own count and by the jobs' histories."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any
from zoneinfo import ZoneInfo

from hipq import Job
from tests.examples.running import jobs, run

CAPS = {"east": 8, "north": 6, "west": 6}


def test_the_network_is_never_asked_for_too_much(tmp_path: Path) -> None:
    printed = run("telecom/changes.py", tmp_path)
    changes = jobs(tmp_path / "telecom.db", "telecom", "changes")
    the_network_never_refused_anything(printed)
    the_limits_held_at_every_moment(changes)
    every_change_ended_as_its_device_says(changes)
    firmware_was_changed_at_night_only(printed, changes)
    urgent_changes_went_before_others(changes)
    records_delivered_twice_were_known(printed, changes)


def most(some: Iterable[Job[Any]]) -> float:
    """The most units that these jobs held at a time. An entry of a history has the time at which its turn began, and
    two workers' turns overlap: so a job counts from the entry after its claim, when it surely had its part."""
    steps = []
    for job in some:
        for before, entry in pairwise(job.history):
            if before["event"] == "claimed":
                steps.append((entry["at"], 1, job.throttle_factor))
            if entry["event"] in ("ok", "failed", "error"):
                steps.append((entry["at"], 0, -job.throttle_factor))
    held = peak = 0.0
    for _, _, units in sorted(steps):
        held += units
        peak = max(peak, held)
    assert held == 0
    return peak


def the_network_never_refused_anything(printed: str) -> None:
    for region, cap in CAPS.items():
        found = re.search(rf"^{region}: at most (\d+) units at a time, of {cap}$", printed, flags=re.MULTILINE)
        assert found
        assert 3 <= int(found[1]) <= cap
    whole = re.search(r"^all: at most (\d+) units at a time, of 20; refused: 0$", printed, flags=re.MULTILINE)
    assert whole
    assert int(whole[1]) <= 20


def the_limits_held_at_every_moment(changes: list[Job[Any]]) -> None:
    counted = [job for job in changes if job.type != "outage"]
    assert 10 <= most(counted) <= 20
    for region, cap in CAPS.items():
        assert most(job for job in counted if job.lane == region) <= cap


def every_change_ended_as_its_device_says(changes: list[Job[Any]]) -> None:
    assert len(changes) == 120
    for job in changes:
        device = job.data["device"]
        assert job.code == ("failed" if device.endswith("0") else "ok"), job.history
        assert job.attempt == (2 if device.endswith("5") else 1), job.history


def firmware_was_changed_at_night_only(printed: str, changes: list[Job[Any]]) -> None:
    rome = ZoneInfo("Europe/Rome")
    firmware = [job for job in changes if job.type == "firmware"]
    assert len(firmware) == 20
    assert "100 changes are done; 20 wait" in printed
    for job in firmware:
        hours = [entry["at"].astimezone(rome).hour for entry in job.history if entry["event"] == "claimed"]
        assert all(hour >= 22 or hour < 5 for hour in hours)


def urgent_changes_went_before_others(changes: list[Job[Any]]) -> None:
    def start(job: Job[Any]) -> datetime:
        at: datetime = next(entry["at"] for entry in job.history if entry["event"] == "claimed")
        return at

    meters = [job for job in changes if job.type == "meter"]
    urgent = [start(job).timestamp() for job in meters if job.priority == 10]
    others = [start(job).timestamp() for job in meters if job.priority == 100]
    assert len(urgent) >= 5
    assert mean(urgent) < mean(others)
    outages = [start(job).timestamp() for job in changes if job.type == "outage"]
    assert max(outages) < mean(others)


def records_delivered_twice_were_known(printed: str, changes: list[Job[Any]]) -> None:
    found = re.search(r"^answers: (.*)$", printed, flags=re.MULTILINE)
    assert found
    became = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", found[1])}
    assert became.pop("duplicate") > 0
    assert sum(became.values()) == sum(job.attempt for job in changes)
