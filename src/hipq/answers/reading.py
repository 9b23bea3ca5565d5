"""A message becomes an answer: its job key, its data, its id, and whether it says that the work failed.

A message that cannot be read is no error: it is kept as unreadable, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol

from msgspec.structs import replace

from hipq.answers.arrive import arrive, is_answer_id, unreadable
from hipq.errors import HipqError, Invalid, shown
from hipq.job import names
from hipq.job.answer import Keeping, NewAnswer
from hipq.job.json_path import reach
from hipq.job.spec import Spec
from hipq.transports.base import ATTEMPT_HEADER, ERROR_HEADER, KEY_HEADER, Message, key_in

Read = Callable[[Message], Any]
_YES: Final = ("true", "1", "yes")


class AnyQueue(Protocol):
    """What a reader must know of the queue whose jobs are answered."""

    @property
    def number(self) -> int: ...
    @property
    def keeping(self) -> Keeping: ...
    def known(self, job_type: str) -> Spec | None: ...


class Reader:
    """Reads the messages of one stream: answers to the jobs of one type."""

    def __init__(
        self,
        queue: AnyQueue,
        job_type: str,
        *,
        key: Read | str | None = None,
        error: Read | str | None = None,
        answer_id: Read | str | None = None,
        data: Read | str | None = None,
    ) -> None:
        self._queue = queue
        self._type = names.job_type(job_type)
        self._key = _key if key is None else _reading(key, "key")
        self._error = _error if error is None else _truth(error)
        self._id = _id if answer_id is None else _reading(answer_id, "answer_id")
        self._data = _data if data is None else _reading(data, "data")
        self._is_whole = data is None and not any(map(callable, (key, error, answer_id)))
        """Whether the data are the message's JSON as received: a user's function may have changed the message."""

    def read(self, messages: list[Message], now: int) -> list[NewAnswer]:
        spec, keeping, number = self._queue.known(self._type), self._queue.keeping, self._queue.number
        found = []
        for message in messages:
            doing = "the message"
            try:
                _ = message.event  # raises if it is malformed, whatever else is read
                doing = "key"
                key = _text(self._key(message))
                doing = "error"
                error = bool(self._error(message))
                doing = "answer_id"
                answer_id = _text(self._id(message))
                doing = "data"
                data = self._data(message)
                new = arrive(
                    number, self._type, key, data, now, spec=spec, keeping=keeping, answer_id=answer_id, error=error,
                    attempt=_attempt(message), written=message.written if self._is_whole else "",
                )  # fmt: skip
            except BaseException as wrong:  # whatever a message is, it must not stop those behind it
                new = self.refused(message, _reason(doing, wrong), now)
            found.append(new)
        return found

    def refused(self, message: Message, reason: str, now: int) -> NewAnswer:
        """The answer to no job as which a message is kept that cannot be read, or that the database refuses."""
        queue = self._queue
        new = unreadable(
            queue.number, self._type, message.body, reason, now, keeping=queue.keeping, answer_id=message.id
        )
        return replace(new, error=_error(message))  # so that it counts as one once somebody gives it a key


def _reason(doing: str, wrong: BaseException) -> str:
    if isinstance(wrong, HipqError):
        return str(wrong)
    return f"{doing} raised {type(wrong).__name__}: {wrong}"


def _reading(given: Read | str, what: str) -> Read:
    """A function of the message, made from a function or from a path into the message's JSON: `order.reference`."""
    if callable(given):
        return given
    if not isinstance(given, str) or not given:
        raise Invalid(f"{what} must be a function of the message, or a field of its JSON like order.id: {shown(given)}")
    path = tuple(given.split("."))
    return lambda message: reach(message.json, path, f"{what}: the message")


def _truth(given: Read | str) -> Read:
    """Whether a field says that the work failed; a message without that field does not."""
    read = _reading(given, "error")
    if callable(given):
        return read

    def says(message: Message) -> bool:
        try:
            found = read(message)
        except Invalid:
            _ = message.json  # which may be what is wrong
            return False
        return found.strip().lower() in _YES if isinstance(found, str) else bool(found)

    return says


def _text(value: Any) -> Any:
    """A whole number as text; other values as they are, for `arrive` to refuse."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _key(message: Message) -> str:
    event = message.event
    found: str = key_in(message.headers) or (event or {}).get("subject") or message.key
    if not found:
        lacks = "CloudEvent has no subject," if event else "message has"
        raise Invalid(f"the {lacks} no {KEY_HEADER} header and no key of its own: give `listen` a key=")
    return found


def _error(message: Message) -> bool:
    return message.headers.get(ERROR_HEADER, "").strip().lower() in _YES


def _id(message: Message) -> str:
    return message.id if message.event is None else event_id(message.event)


def event_id(event: Mapping[str, Any]) -> str:
    """What tells a CloudEvent from all others: its source and its id together."""
    whole = f"{event['source']} {event['id']}"
    return whole if is_answer_id(whole) else sha256(whole.encode()).hexdigest()


def _data(message: Message) -> Any:
    return message.json if message.event is None else message.event["data"]


def _attempt(message: Message) -> int | None:
    """The attempt that the message is an answer to, if its sender returned the header of the request."""
    said = message.headers.get(ATTEMPT_HEADER, "")
    is_number = said.isascii() and said.isdigit() and len(said) <= 10
    return int(said) if is_number and 0 < int(said) < 1 << 31 else None
