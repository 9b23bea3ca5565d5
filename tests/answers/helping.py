"""What the tests of answers share: a job type that sends a request, and looks at what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipq import Answer, Hipq, Job, JobType, Queue, Wait
from hipq.job.units import Number, number

Run = Callable[[], None]
MakeApp = Callable[[], Hipq]


class Bank:
    """The service outside: counts the requests it was sent and the answers that were looked at."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        """The attempt of each request."""
        self.looked: list[Any] = []
        """What the answer handler was given."""
        self.called_off: list[str] = []
        """Keys of jobs that were called off."""

    def charge(self, queue: Queue, wait: Wait | None = None, **options: Any) -> JobType:
        """A job type without an answer handler."""

        def charge(job: Job[Any]) -> Wait:
            self.sent.append(job.attempt)
            return wait or Wait()

        return queue.job("charge", **options)(charge)

    def answered(self, charge: JobType, outcome: Callable[[Any], Any] = lambda data: data) -> None:
        """Give it an answer handler, which makes this of the answer's data."""

        @charge.answered
        def settled(_job: Job[Any], answer: Answer) -> Any:
            self.looked.append(answer.data)
            return outcome(answer.data)

    def cancelled(self, charge: JobType) -> None:
        @charge.cancelled
        def call_off(job: Job[Any]) -> None:
            self.called_off.append(job.key)


def told(job: Job[Any]) -> list[str]:
    """What its history says happened."""
    return [entry["event"] for entry in job.history]


def held(app: Hipq, job_id: int) -> Number:
    row = app.store.get(job_id)
    assert row is not None
    return number(row.held)


def kept(app: Hipq, **wanted: Any) -> list[tuple[Any, str]]:
    """The data and the state of the answers in the inbox."""
    return [(one.data, one.state) for one in app.answers.list(**wanted)]


def step(by: dict[str, Any]) -> Callable[[Any], Any]:
    """An answer handler that looks up its outcome; what it does not know is the result."""

    def outcome(data: Any) -> Any:
        found = by.get(data, data)
        if isinstance(found, BaseException):
            raise found
        return found

    return outcome
