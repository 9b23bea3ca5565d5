"""A daemon's replies: the value that was asked for, or the hipq error that says why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hipq.errors import (
    Conflict,
    DaemonUnavailable,
    DuplicateKey,
    HipqError,
    Invalid,
    JobFailed,
    NotFound,
    OverQuota,
    Unauthorized,
)


class Response(NamedTuple):
    """A reply as it came."""

    status: int
    headers: Mapping[str, str]
    """The headers, by their names in lower case."""
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            text = f"what replied with status {self.status} is no hipq daemon: its reply is not JSON"
            raise DaemonUnavailable(text) from None

    @property
    def retry_after(self) -> float | None:
        """Seconds until another try is worth it, if the reply says so."""
        said = self.headers.get("retry-after", "")
        return float(said) if said.isascii() and said.isdigit() else None


class Lost(NamedTuple):
    """There was no reply."""

    why: str
    sent: bool
    """Whether the request may have arrived."""


class Result(NamedTuple):
    """How a job ended."""

    id: str
    code: str
    exitcode: int
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()

    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def fault(self) -> str:
        return self.data[:200].decode("utf-8", "replace")


_KINDS: Final[Mapping[int, type[HipqError]]] = {
    **dict.fromkeys((400, 405, 413, 415, 422, 431), Invalid), **dict.fromkeys((409, 410), Conflict),
    401: Unauthorized, 403: Unauthorized, 404: NotFound, 408: DaemonUnavailable,
}  # fmt: skip


def good(response: Response) -> Response:
    """The reply, if it is a success; otherwise raises the error it stands for."""
    if 200 <= response.status < 300:
        return response
    try:
        said = json.loads(response.body)
    except ValueError:
        said = {}
    if not isinstance(said, dict):
        said = {}
    text = str(said.get("error", f"the daemon replied with status {response.status}"))
    if response.status == 429:
        raise OverQuota(text, int(response.retry_after or 1))
    if response.status == 409 and "id" in said:
        raise DuplicateKey(str(said.get("type", "")), str(said.get("key", "")), int(said["id"]))
    raise _KINDS.get(response.status, DaemonUnavailable)(text)


def result(job_id: str, response: Response) -> Result | None:
    """How the job ended; None if it has not. JobFailed if it did not succeed."""
    if good(response).status == 202:
        return None
    code, exitcode = (response.headers.get(f"x-hipq-{name}", "") for name in ("code", "exitcode"))
    found = Result(job_id, code, int(exitcode or 0), response.body)
    if found.code != "ok":
        raise JobFailed(found)
    return found
