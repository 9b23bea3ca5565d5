"""Handlers that are a URL: the payload is posted there, the reply's status is the job's status, its body the data."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from hipq.errors import CannotRun, Invalid
from hipq.sandbox.addresses import Allowed
from hipq.sandbox.begun import UNWANTED, BegunJobs
from hipq.sandbox.handler import MOST_DATA, ContextJob, Handler, JobReport, OnEnd, OnStart, parsed
from hipq.sandbox.output import escaped
from hipq.sandbox.settings import ContextSettings
from hipq.sandbox.statuses import ERROR, KILLED, TIMED_OUT, TOO_LARGE, checked

if TYPE_CHECKING:
    from hipq.sandbox.http_network import Pool

REFUSED: Final = 403
"""The status of a URL that must not be reached: another try would not help."""
UNREACHED: Final = 502
TOO_MANY: Final = 429
AGAIN: Final = 129
"""The status of a job whose service said 429: it runs again, because it is not at fault."""
_LONGEST: Final = 86_400.0
"""The longest Retry-After that is believed, in seconds."""
_MISSING: Final = "http handlers need httpx2: pip install 'hipq[daemon]'"


class HttpRunner:
    """Runs HTTP handlers, for any number of threads. Each batch has its own connections, so that tenants share
    nothing."""

    def __init__(self, settings: ContextSettings, jobs: BegunJobs) -> None:
        self._jobs = jobs
        self._together = max(settings.http_together, 1)
        self._allowed = Allowed(settings.http_allow)

    def refuses(self) -> str:
        try:
            import httpcore2  # noqa: F401
        except ImportError:
            return _MISSING
        return ""

    def run(self, handler: Handler, tasks: Sequence[ContextJob], started: OnStart, ended: OnEnd) -> list[ContextJob]:
        """As Context.run, but with several tasks under way at the same time. The callbacks are called in this
        thread."""
        if why := self.refuses():
            raise CannotRun(why)
        with asyncio.Runner() as runner:
            runner.get_loop()  # OSError if there is no descriptor left for a loop
            return runner.run(self._all(handler, deque(tasks), started, ended))

    async def _all(
        self, handler: Handler, waiting: deque[ContextJob], started: OnStart, ended: OnEnd
    ) -> list[ContextJob]:
        from hipq.sandbox.http_network import pool

        left: list[ContextJob] = []
        soon = asyncio.get_running_loop().call_soon_threadsafe
        async with pool(self._allowed, self._together) as connections, asyncio.TaskGroup() as group:

            async def work() -> None:
                while waiting:
                    task = waiting.popleft()
                    posting = group.create_task(_post(connections, handler, task))
                    if not self._jobs.begin(task.name, partial(soon, posting.cancel)):
                        posting.cancel()
                        left.append(task)
                        continue
                    since = time.monotonic()
                    started(task)
                    await asyncio.wait([posting])
                    self._jobs.end(task.name)
                    killed = JobReport(task.id, KILLED, error=UNWANTED)
                    report = killed if posting.cancelled() else posting.result()
                    report.seconds = time.monotonic() - since
                    ended(report)

            for _ in range(min(self._together, len(waiting))):
                group.create_task(work())
        return left


async def _post(connections: Pool, handler: Handler, task: ContextJob) -> JobReport:
    from hipq.sandbox.http_network import FAULTS, why

    report = JobReport(task.id, ERROR)
    try:
        parsed(handler.body)
        async with asyncio.timeout(task.seconds):
            await _exchange(connections, handler, task, report)
    except TimeoutError:
        report.status, report.error = TIMED_OUT, f"no complete answer within {task.seconds:g} s"
    except Invalid as error:
        report.status, report.error = REFUSED, str(error)
    except FAULTS as error:
        report.status, report.error = UNREACHED, why(error)
    except Exception as error:  # the library failed: one bad reply must not end the batch
        report.status, report.error = UNREACHED, f"it could not be posted ({type(error).__name__})"
    report.error = escaped(report.error[:1000])
    return report


async def _exchange(connections: Pool, handler: Handler, task: ContextJob, report: JobReport) -> None:
    headers: dict[bytes | str, bytes | str] = {
        "Host": parsed(handler.body).netloc,
        "User-Agent": "hipq",
        "Accept": "*/*",
        "Accept-Encoding": "identity",  # a small compressed reply must not become large here
        "Content-Type": "application/octet-stream",
        "Content-Length": str(len(task.payload)),
        "Hipq-Job-Id": _printable(task.id),
        "Hipq-Job-Type": handler.type,
        "Hipq-Attempt": str(task.attempt),
    }
    data = bytearray()
    async with connections.stream("POST", handler.body, headers=headers, content=task.payload) as answer:
        report.status, report.error = checked(answer.status)
        if answer.status == TOO_MANY:
            report.status, report.error = AGAIN, "it answered 429: it wants to be asked again later"
            report.retry_after = _retry_after(answer.headers)
        if 300 <= answer.status <= 399:
            report.error = f"it answered {answer.status}, and redirects are not followed"
        async for block in answer.aiter_stream():
            data += block
            if len(data) > MOST_DATA:
                report.status, report.error = TOO_LARGE, f"it answered with more than {MOST_DATA:,} bytes"
                return
    report.data = bytes(data)


def _retry_after(headers: Sequence[tuple[bytes, bytes]]) -> float:
    """The seconds in a Retry-After header, given as a number or a date; 0 if there is neither."""
    said = next((value.decode("latin-1").strip() for name, value in headers if name.lower() == b"retry-after"), "")
    if said.isascii() and said.isdigit():
        return min(float(said[:9]), _LONGEST)
    try:
        wait = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(wait, 0.0), _LONGEST)


def _printable(text: str) -> str:
    return "".join(letter if " " < letter < "\x7f" else "?" for letter in text)[:500]
