"""A daemon in this process, with real contexts, while a test looks on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from hipq.daemon.daemon import Daemon, Options
from hipq.daemon.job_factory import Options as JobOptions
from hipq.daemon.jobs import Jobs
from hipq.job.model import Row
from hipq.job.states import FINAL
from hipq.sandbox import ContextSettings
from hipq.sandbox.bubblewrap import why_no_sandbox
from hipq.stores.protocols import Store
from tests.engine.working import until
from tests.their_connection import committed

SETTINGS = ContextSettings(trust=bool(why_no_sandbox()))


def made(folder: Path, url: str = "", scheduler: Any = None, **options: Any) -> Daemon:
    """Not started yet."""
    given: dict[str, Any] = {
        "retry_after": 0.05,
        "retry_most": 0.05,
        "concurrency": 4,
        "contexts": SETTINGS,
        "journal": str(folder / "journal"),
    }
    return Daemon(Options(db=url or f"sqlite:///{folder}/daemon.db", **given | options), scheduler)


@contextmanager
def daemon(folder: Path, url: str = "", **options: Any) -> Iterator[Daemon]:
    found = made(folder, url, **options)
    found.start()
    try:
        yield found
    except BaseException:
        found.stop_now()
        raise
    finally:
        found.stop()
        found.close()


def add(daemon: Daemon, jobtype: str, *payloads: bytes, tenant: str = "acme", **options: Any) -> list[int]:
    """As HTTP does it: acknowledged when this returns."""
    return added(daemon.jobs, tenant, jobtype, payloads or (b"",), **options)


def added(jobs: Jobs, tenant: str, jobtype: str, payloads: Sequence[bytes], **options: Any) -> list[int]:
    if options.get("key"):
        return jobs.add_to_store(tenant, jobtype, payloads, JobOptions(**options))

    async def written() -> list[int]:
        heard: asyncio.Future[list[int] | Exception] = asyncio.get_running_loop().create_future()
        jobs.put(tenant, jobtype, payloads, JobOptions(**options), heard.set_result)
        if isinstance(ids := await heard, Exception):
            raise ids
        return ids

    return asyncio.run(written())


def python(daemon: Daemon, jobtype: str, body: str, tenant: str = "acme", **parts: Any) -> None:
    daemon.handlers.set(tenant, jobtype, lang="python", body=body, **parts)


def row(daemon: Daemon, job_id: int) -> Row:
    until(lambda: daemon.store.get(job_id) is not None)
    found = daemon.store.get(job_id)
    assert found is not None
    return found


def ended(daemon: Daemon, job_id: int, seconds: float = 60.0) -> Row:
    until(lambda: row(daemon, job_id).state == FINAL, seconds)
    return row(daemon, job_id)


def history(row: Row) -> list[dict[str, Any]]:
    return list(msgspec.json.decode(row.history))


def ran(row: Row) -> list[str]:
    """The names of what happened to it."""
    return [entry["event"] for entry in history(row)]


def refuse(store: Store, url: str, payload: str) -> None:
    """From now on the database itself refuses jobs with this payload."""
    (queue,) = store.queues()
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn:
            conn.execute(
                f"CREATE TRIGGER picky BEFORE INSERT ON {queue.table} WHEN new.job_data LIKE '%{payload}%' "
                "BEGIN SELECT RAISE (ABORT, 'too picky for this'); END"
            )
    else:
        check = f"CHECK (job_data NOT LIKE '%{payload}%')"
        with committed(url) as conn:
            conn.execute(f"ALTER TABLE {queue.table} ADD CONSTRAINT picky {check}")
