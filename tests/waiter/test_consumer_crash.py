"""A consumer killed with -9 while its handlers run: every message is handled at least once."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

from tests import processes
from tests.waiter.cloud import Cloud
from tests.waiter.consuming import eventually, is_empty, put

PROGRAM = """
import os
import time

from hipq.waiter import Message, Waiter

waiter = Waiter([{queue!r}], endpoint_url={endpoint!r})
book = os.open("book", os.O_CREAT | os.O_WRONLY | os.O_APPEND)


@waiter.handle({queue!r}, visibility=2)
def work(message: Message) -> None:
    os.write(book, f"began {{message.body}} {{os.getpid()}}\\n".encode())
    if "HELD" in os.environ and message.body.endswith("5"):
        time.sleep(600)  # until the process is killed
    os.write(book, f"ended {{message.body}} {{os.getpid()}}\\n".encode())
"""
MESSAGES = 60
KILLS = 3


class Book:
    """What the handlers of all processes have written down."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "book"

    def lines(self, what: str) -> list[tuple[str, int]]:
        text = self._file.read_text() if self._file.exists() else ""
        words = [line.split() for line in text.splitlines()]
        return [(body, int(pid)) for kind, body, pid in words if kind == what]


def test_every_message_is_handled_though_consumers_are_killed(cloud: Cloud, tmp_path: Path) -> None:
    queue = cloud.queue()
    (tmp_path / "post.py").write_text(PROGRAM.format(queue=queue, endpoint=cloud.endpoint))
    put(cloud, queue, *map(str, range(MESSAGES)))
    book, killed = Book(tmp_path), list[int]()
    for life in range(KILLS + 1):
        with (tmp_path / "log").open("ab") as log:
            command = [
                sys.executable,
                "-m",
                "hipq.cli.main",
                "waiter",
                "work",
                "post:waiter",
                "--no-poller",
                "--wait",
                "1",
            ]
            env = {**os.environ, **({"HELD": "1"} if life < KILLS else {})}
            process = processes.Popen(command, cwd=tmp_path, stdout=log, stderr=log, env=env)
        try:
            if life < KILLS:
                before = len(book.lines("began"))
                eventually(lambda before=before: len(book.lines("began")) >= before + 12)  # type: ignore[misc]
                process.kill()
                killed.append(process.pid)
            else:
                eventually(lambda: is_empty(cloud, queue))
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()
    ended = Counter(body for body, _ in book.lines("ended"))
    assert set(ended) == {str(n) for n in range(MESSAGES)}
    cut_off = set(book.lines("began")) - set(book.lines("ended"))
    assert {pid for _, pid in cut_off} <= set(killed)
    assert cut_off
    print(f"{KILLS} kills, {len(cut_off)} handlers cut off, {sum(ended.values()) - MESSAGES} handled twice")
