"""docs/events.md names every event, once."""

from __future__ import annotations

import re

from hipq.events import ANSWER_EVENTS, ENGINE_EVENTS, JOB_EVENTS, LISTENER_EVENTS
from tests.docs.test_readme import ROOT


def test_no_event_is_missing() -> None:
    parts = (ROOT / "docs/events.md").read_text().split("\n## Events of ")[1:]
    told = {part.split()[0]: re.findall(r"^\| `([\w ]+)` \|", part, flags=re.MULTILINE) for part in parts}
    for subject, events in (
        ("jobs", JOB_EVENTS), ("answers", ANSWER_EVENTS), ("listeners", LISTENER_EVENTS), ("engines", ENGINE_EVENTS),
    ):  # fmt: skip
        assert sorted(told[subject]) == sorted(events)
