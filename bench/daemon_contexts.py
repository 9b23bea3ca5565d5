"""Jobs in contexts, language by language; and the same function in a bare loop of that language."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Final

from hipq.sandbox import ContextJob, ContextPool, ContextSettings, Handler, JobReport, languages

BODIES: Final = {
    "python": "return 'got ' + payload",
    "node": "return 'got ' + payload",
    "php": "return 'got ' . $payload;",
    "shell": 'read -r line; status 200 "got $line"',
}
LOOPS: Final = {
    "python": "import sys\ndef f(payload):\n return 'got ' + payload\nfor line in sys.stdin: print(f(line[:-1]))",
    "node": (
        "const f = (payload) => 'got ' + payload;"
        "require('readline').createInterface({input: process.stdin}).on('line', (line) => console.log(f(line)));"
    ),
    "php": (
        "function f($payload) { return 'got ' . $payload; }"
        'while (($l = fgets(STDIN)) !== false) { echo f(rtrim($l)), "\\n"; }'
    ),
    "shell": 'f() { read -r line; echo "got $line"; }; while read -r one; do printf "%s\\n" "$one" | f; done',
}
_CODE: Final = {"python": "-c", "node": "-e", "php": "-r", "shell": "-c"}
BATCH: Final = 100


def here() -> list[str]:
    """The languages there are interpreters for."""
    return [name for name in languages(ContextSettings()) if name in BODIES]


def in_contexts(language: str, count: int) -> float:
    """Jobs a second through one context, a hundred at a time; its start is not counted."""
    contexts = ContextPool(ContextSettings())
    handler = Handler("1", "acme", "bench", language, BODIES[language])
    try:
        _run(contexts, handler, BATCH)
        return _rate(lambda: _run(contexts, handler, count), count)
    finally:
        contexts.close()


def _run(contexts: ContextPool, handler: Handler, count: int) -> None:
    reports: list[JobReport] = []
    for start in range(0, count, BATCH):
        tasks = [ContextJob(str(n), b"payload %d" % n, 1, 60.0) for n in range(start, start + BATCH)]
        left = contexts.run(handler, tasks, lambda _task: None, reports.append)
        assert not left, f"{len(left)} were not run"
    assert len(reports) == count
    assert all(one.status == 200 and one.data.startswith(b"got payload") for one in reports), reports[0]


def in_a_loop(language: str, count: int) -> float:
    """The same in a program that does nothing else. Its start is in it, so it gets many."""
    text = b"".join(b"payload %d\n" % n for n in range(count))
    command = [languages(ContextSettings())[language], _CODE[language], LOOPS[language]]
    assert shutil.which(command[0])

    def run() -> None:
        done = subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True)
        assert done.stdout.count(b"got payload") == count

    return _rate(run, count)


def _rate(work: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)
