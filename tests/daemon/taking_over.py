"""Journals of daemons that do not come back, taken over by a process that dies at each step, and then by another.

python -m tests.daemon.taking_over FOLDER URL KIND    one line for every step; KIND is `files`, or `store` for its steps
                                                      in the database only
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from hipq.app import Hipq
from hipq.daemon.http.feed import Feed
from hipq.daemon.ids import JournalIds
from hipq.daemon.ingest import Ingest
from hipq.daemon.jobs import Jobs
from hipq.daemon.known import Known
from hipq.daemon.options import APP, QUEUE
from hipq.daemon.take_over import take_over
from hipq.journal import Journal
from hipq.stores.open import open_store
from tests.daemon.working import added

FILES = ("fdatasync", "fsync", "ftruncate", "pwrite", "rename", "unlink")
STORE = ("ingest", "change_note")


def lost(folder: Path, url: str) -> list[int]:
    """A journal as a power cut leaves it: the database has some of it, and its end was not written whole. The ids of
    its jobs."""
    ids: list[int] = []
    for is_stored in (True, False):
        with closing(Hipq(APP, url)) as app, closing(Journal(folder)) as journal:
            app.migrate()
            queue = app.queue(QUEUE)
            known = Known(journal)
            own = JournalIds(
                app.store, queue.number, journal.identity, range(*known.facts.ids),
                partial(_keep, known),
            )  # fmt: skip
            own.reserve()
            jobs = Jobs(app, queue, journal, own, Feed(app.events))
            ingest = Ingest(app.store, journal, jobs, own, lambda *_: None)
            ingest.begin()
            for _ in range(2 if is_stored else 4):
                ids += added(jobs, "acme", "mail", [b"x"] * 3)
            if is_stored:
                ingest.step()
            else:
                added(jobs, "acme", "mail", [b"its end is cut off"])
    last = max(folder.glob("*.journal"))
    os.truncate(last, last.stat().st_size - 20)
    return ids


def _keep(known: Known, spare: range) -> None:
    known.keep(ids=(spare.start, spare.stop))


def die_at(step: int, kind: str, url: str) -> None:
    """Before a call with this number, of those that change files; before or after one that changes the database."""
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(real: Callable[..., Any], after: bool) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            count()
            found = real(*given, **more)
            if after:
                count()
            return found

        return call

    store = open_store(url)
    for name in STORE:
        setattr(type(store), name, dying(getattr(type(store), name), True))
    store.close()
    for name in FILES if kind == "files" else ():
        setattr(os, name, dying(getattr(os, name), False))


def forked(do: Callable[[], Any]) -> tuple[int, Any]:
    """What a child makes of it, and how it ended: this process itself opens nothing."""
    heard, told = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(told, json.dumps(do()).encode())
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(1)
    os.close(told)
    with os.fdopen(heard, "rb") as said:
        found = said.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(found) if found else None


def main() -> None:
    logging.getLogger("hipq").setLevel(logging.CRITICAL)
    place, url, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    def taken(folder: Path) -> int:
        return take_over(str(folder), url, lambda _: None).jobs

    def dying(folder: Path, step: int) -> int:
        die_at(step, kind, url)
        return taken(folder)

    for step in range(1, 10_000):
        folder = place / str(step)
        _, ids = forked(partial(lost, folder, url))
        status, _ = forked(partial(dying, folder, step))
        again, jobs = forked(partial(taken, folder))
        print(json.dumps({"step": step, "status": status, "again": again, "jobs": jobs, "ids": ids}), flush=True)
        if status != -signal.SIGKILL:
            return


if __name__ == "__main__":
    main()
