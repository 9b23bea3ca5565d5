"""A job as /v1 takes it: what may be said of it, and what is refused."""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from hipq.daemon.http.add import Wanted
from hipq.daemon.http.routes_table import TYPE, WHEN, read_moment
from hipq.daemon.http.strict_json import compact, strict
from hipq.daemon.job_factory import Options
from hipq.daemon.tenancy.tenants import jobtype_name
from hipq.errors import Invalid
from hipq.job import names
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.job.when import LONGEST
from hipq.job.windows import Window, dump

DURATION: Final = {"minimum": 0, "maximum": LONGEST}


class NewJob(msgspec.Struct, forbid_unknown_fields=True):
    """A job to be added. What it carries is one of data, payload and payload_base64; without them, nothing."""

    type: Annotated[str, Meta(extra_json_schema=TYPE)]
    data: Any = msgspec.UNSET
    """Any JSON: the payload is its compact text."""
    payload: str | msgspec.UnsetType = msgspec.UNSET
    """Text, as it is."""
    payload_base64: str | msgspec.UnsetType = msgspec.UNSET
    """Bytes."""
    key: Annotated[str, Meta(extra_json_schema={"maxLength": names.KEY_LIMIT})] = ""
    at: Annotated[str | float | None, Meta(extra_json_schema=WHEN)] = None
    delay: Annotated[float, Meta(extra_json_schema=DURATION)] = 0
    priority: Annotated[int, Meta(extra_json_schema={"minimum": PRIORITY_MIN, "maximum": PRIORITY_MAX})] = 100
    timeout: Annotated[float, Meta(extra_json_schema=DURATION)] = 0
    windows: tuple[Window, ...] = ()
    """Times of day in which it may start; without any, at all times."""
    then: Annotated[str, Meta(extra_json_schema={"pattern": f"^$|{TYPE['pattern']}"})] = ""

    def bytes(self) -> bytes:
        return payload_of(self) or b""

    def options(self) -> Options:
        if self.at is not None and self.delay:
            raise Invalid("a job has at or delay, not both")
        return Options(
            key=names.key(self.key) if self.key else "",
            at=read_moment(self.at) if self.at is not None else 0,
            delay=within("delay", self.delay),
            priority=names.priority(self.priority),
            timeout=within("timeout", self.timeout),
            windows=dump(self.windows),
            then=jobtype_name(self.then) if self.then else "",
        )


def read_windows(text: str) -> str:
    """Windows as a row keeps them, from JSON in a query."""
    try:
        return dump(msgspec.convert(strict(text, "windows"), tuple[Window, ...]))
    except msgspec.ValidationError as error:
        raise Invalid(f"windows is no array of windows: {error}") from None


def payload_of(said: Any) -> bytes | None:
    """What is in the one of `data`, `payload` and `payload_base64` that is given; None if none is."""
    given = [value for value in (said.data, said.payload, said.payload_base64) if value is not msgspec.UNSET]
    if len(given) > 1:
        raise Invalid("a job has one of data, payload and payload_base64, not several")
    if isinstance(said.payload, str):
        return said.payload.encode()
    if isinstance(said.payload_base64, str):
        return _bytes(said.payload_base64)
    return compact(said.data) if given else None


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise Invalid("payload_base64 is not base64") from None


def within(name: str, value: float) -> float:
    if not 0 <= value <= LONGEST:
        raise Invalid(f"{name} must be between 0 seconds and a hundred years")
    return float(value)


def read_jobs(body: bytes) -> list[Wanted]:
    """The jobs of a body: an object, or an array of objects."""
    if not body.strip():
        raise Invalid("the body is empty, and should be JSON")
    found = strict(body)
    try:
        jobs = msgspec.convert(found if isinstance(found, list) else [found], list[NewJob])
    except msgspec.ValidationError as error:
        raise Invalid(f"this is no job: {error}") from None
    if not jobs:
        raise Invalid("the array is empty: there is no job in it")
    return [Wanted(jobtype_name(job.type), job.options(), [job.bytes()]) for job in jobs]
