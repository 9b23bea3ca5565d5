"""Control data is in `meta`; the history is for people, and nothing but what shows it to people reads it."""

from __future__ import annotations

import ast
from pathlib import Path

import hipq

SHOWS_IT = {
    "job/view.py": "Job.history",
    "engine/why/words.py": "the sentences of `hipq job why`",
    "observe/logs.py": "the text of a log line",
    "observe/traces.py": "where the span of a wait begins on the time line",
    "daemon/joblog.py": "the log of jobs",
    "daemon/job_output.py": "what a handler has printed, for those who look on",
    "daemon/http/job_json.py": "a job as the API shows it",
    "cli/show.py": "`hipq job show`",
    "demo/summary.py": "what `hipq demo` tells",
    "demo/afterwards.py": "what `hipq demo` tells",
    "dashboard/conversation.py": "the time line of the dashboard's page of a job",
    "django/job_page.py": "the page of a job in Django's admin, for people",
    "django/results.py": "a Django task result, for people",
    "testing/expect.py": "the message of a test that failed",
}
WRITES_IT = {"stores/sql/settle.py"}


def reads(path: Path) -> list[int]:
    """Lines that look at a history, other than to add an entry to it: the first argument of `remember`."""
    tree = ast.parse(path.read_text("utf-8"))
    added_to = {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "remember" and node.args
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "history" and id(node) not in added_to
    ]


def test_no_decision_depends_on_the_history() -> None:
    source = Path(hipq.__file__).parent
    readers = {
        name: lines
        for path in sorted(source.rglob("*.py"))
        if (name := path.relative_to(source).as_posix()) and (lines := reads(path))
    }
    assert {name: lines for name, lines in readers.items() if name not in SHOWS_IT.keys() | WRITES_IT} == {}
    assert "job/view.py" in readers  # else this looks at nothing
