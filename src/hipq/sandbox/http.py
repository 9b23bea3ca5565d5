"""Handlers that are a URL: the payload is posted there, the reply's status is the job's status, its body the data.

Connections reach only allowed hosts: a name is resolved once, all its addresses are checked, one is used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Final

import httpcore2

from hipq.errors import Invalid
from hipq.in_thread import in_thread
from hipq.sandbox.addresses import Allowed, resolve
from hipq.sandbox.begun import UNWANTED, BegunJobs
from hipq.sandbox.handler import MOST_DATA, ContextJob, Handler, JobReport, OnEnd, OnStart, Sign, parsed, unsigned
from hipq.sandbox.output import escaped
from hipq.sandbox.statuses import ERROR, KILLED, TIMED_OUT, TOO_LARGE, checked

Pool = httpcore2.AsyncConnectionPool
REFUSED: Final = 403
"""The status of a URL that must not be reached: another try would not help."""
UNREACHED: Final = 502
TOO_MANY: Final = 429
AGAIN: Final = 129
"""The status of a job whose service said 429: it runs again, because it is not at fault."""
_LONGEST: Final = 86_400.0
"""The longest Retry-After that is believed, in seconds."""
_FAULTS: Final = (
    httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol, OSError,
    UnicodeError,
)  # fmt: skip
"""The errors that an exchange may raise, beside hipq's own refusals."""


async def run_posts(
    handler: Handler,
    tasks: Sequence[ContextJob],
    started: OnStart,
    ended: OnEnd,
    jobs: BegunJobs,
    allowed: Allowed,
    together: int,
    sign: Sign = unsigned,
) -> list[ContextJob]:
    """As Context.run, with several tasks at the same time, and own connections, so that tenants share nothing."""
    waiting, left = deque(tasks), list[ContextJob]()
    soon = asyncio.get_running_loop().call_soon_threadsafe
    pool = Pool(
        _secure(), max_connections=together, max_keepalive_connections=together, network_backend=_Network(allowed)
    )
    async with pool as connections, asyncio.TaskGroup() as group:

        async def work() -> None:
            while waiting:
                task = waiting.popleft()
                posting = group.create_task(_post(connections, handler, task, sign))
                if not jobs.begin(task.name, partial(soon, posting.cancel)):
                    posting.cancel()
                    left.append(task)
                    continue
                since = time.monotonic()
                started(task)
                await asyncio.wait([posting])
                jobs.end(task.name)
                killed = JobReport(task.id, KILLED, error=UNWANTED)
                report = killed if posting.cancelled() else posting.result()
                report.seconds = time.monotonic() - since
                ended(report)

        for _ in range(min(together, len(waiting))):
            group.create_task(work())
    return left


async def _post(connections: Pool, handler: Handler, task: ContextJob, sign: Sign) -> JobReport:
    report = JobReport(task.id, ERROR)
    try:
        parsed(handler.body)
        async with asyncio.timeout(task.seconds):
            await _exchange(connections, handler, task, report, sign(task))
    except TimeoutError:
        report.status, report.error = TIMED_OUT, f"no complete answer within {task.seconds:g} s"
    except Invalid as error:
        report.status, report.error = REFUSED, str(error)
    except _FAULTS as error:
        report.status, report.error = UNREACHED, _why(error)
    except Exception as error:  # the library failed: one bad reply must not end the batch
        report.status, report.error = UNREACHED, f"it could not be posted ({type(error).__name__})"
    report.error = escaped(report.error[:1000])
    return report


async def _exchange(
    connections: Pool, handler: Handler, task: ContextJob, report: JobReport, signed: Mapping[str, str]
) -> None:
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
    headers.update(signed.items())
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


# -- connections ----------------------------------------------------------------------------------------------------
class _Network(httpcore2.AnyIOBackend):
    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = self._allowed.pick(host, await in_thread(lambda: resolve(host, port)), port)
        for address in addresses[:-1]:
            try:
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await super().connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        raise Invalid(f"{path!r} is no host")


@lru_cache(maxsize=1)
def _secure() -> ssl.SSLContext:
    """The TLS settings, made once because reading all certificates takes longer than a request."""
    return ssl.create_default_context()


def _why(error: BaseException) -> str:
    """The error in words."""
    cause = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__ or cause
        if isinstance(cause, ssl.SSLError) or (isinstance(cause, OSError) and cause.errno is not None):
            break  # an OSError of no number only wraps what happened
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted ({cause.verify_message})"
        case ssl.SSLError():
            return "a secure connection failed"
        case socket.gaierror():
            return f"its name is not found ({cause.strerror})"
        case ConnectionRefusedError():
            return "nobody listens there (connection refused)"
        case UnicodeError():
            return "its name is no host name"
    match error:
        case httpcore2.ProtocolError():
            return "what it answered is not HTTP, or it hung up in the middle"
        case _:
            return f"the connection broke ({type(cause).__name__})"
