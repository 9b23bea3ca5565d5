"""What to try next: commands to paste, about what has just happened."""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hipq import Job
from hipq.demo.summary import DemoFacts


class Suggestion(NamedTuple):
    why: str
    command: str


def suggestions(facts: DemoFacts, url: str) -> list[Suggestion]:
    hipq, db = _program(), shlex.quote(url)
    needs = "" if find_spec("jinja2") and find_spec("uvicorn") else " (pip install 'hipq[dashboard]' first)"
    return [
        Suggestion(f"all of it, in a browser{needs}", f"{hipq} dashboard --db {db}"),
        Suggestion("a job with an eventful life", f"{hipq} job show --db {db} {_eventful(facts).id}"),
        Suggestion("what a job is waiting for", f"{hipq} job why --db {db} {facts.tomorrow}"),
        Suggestion("answers that came too late", f"{hipq} answers list --db {db} --state late"),
        Suggestion("how fast your disk is", f"{hipq} bench --seconds 5"),
    ]


def _eventful(facts: DemoFacts) -> Job[Any]:
    return max(facts.of_type("charge"), key=lambda job: (len(job.history), -job.id))


def _program() -> str:
    """The command as it can be typed here: it need not be on the PATH."""
    ours = Path(sys.executable).with_name("hipq")
    if not ours.exists():
        return f"{shlex.quote(sys.executable)} -m hipq.cli.main"
    return "hipq" if shutil.which("hipq") == str(ours) else shlex.quote(str(ours))
