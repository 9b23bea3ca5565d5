"""Clients of SQS and DynamoDB, and boto3's errors translated into hipq's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.waiter.clock import AwsClock

MISSING: Final = "the waiter needs boto3: pip install 'hipq[waiter]'"
ATTEMPTS: Final = 4
"""How often boto3 tries a call that is throttled or gets no answer."""

Service = Literal["sqs", "dynamodb"]


@dataclass(frozen=True, slots=True)
class AwsTarget:
    """A queue or a table, as error messages name it."""

    scheme: Service
    name: str

    def __str__(self) -> str:
        return f"{'queue' if self.scheme == 'sqs' else 'table'} {self.name}"


class AwsClients:
    """The boto3 clients, made when first needed because boto3 is slow to load and looks for credentials.
    Thread-safe."""

    def __init__(self, session: Any, endpoint_url: str | None, region: str | None, clock: AwsClock) -> None:
        self._session, self._endpoint_url, self._region, self._clock = session, endpoint_url, region, clock
        self._lock = threading.Lock()
        self._made: dict[tuple[int, Service], Any] = {}

    @property
    def sqs(self) -> Any:
        return self._client("sqs")

    @property
    def dynamodb(self) -> Any:
        return self._client("dynamodb")

    def impatient_sqs(self, read: float) -> Any:
        """A new SQS client that tries once and gives up after `read` seconds, for callers that retry by themselves."""
        return self._open("sqs", read, 1)

    def _client(self, service: Service) -> Any:
        key = os.getpid(), service  # a forked child that used its parent's connections would read the parent's answers
        with self._lock:
            if key not in self._made:
                self._made[key] = self._open(service)
            return self._made[key]

    def _open(self, service: Service, read: float = 25.0, attempts: int = ATTEMPTS) -> Any:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import NoRegionError
        except ModuleNotFoundError:
            raise Invalid(MISSING) from None
        config = Config(
            connect_timeout=10,
            read_timeout=read,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=64,
            tcp_keepalive=True,
        )
        with errors(AwsTarget(service, "of AWS")):
            session = self._session or boto3.session.Session()
            try:
                client = session.client(
                    service, endpoint_url=self._endpoint_url, region_name=self._region, config=config
                )
            except NoRegionError:
                raise Invalid(
                    "the waiter: in which AWS region? Pass region= (--region), or set AWS_DEFAULT_REGION"
                ) from None
        client.meta.events.register(f"before-send.{service}", self._sent)
        client.meta.events.register(f"response-received.{service}", self._received)
        return client

    def _sent(self, **_: Any) -> None:
        self._clock.call_began()

    def _received(self, response_dict: dict[str, Any] | None = None, **_: Any) -> None:
        if response_dict:
            self._clock.answer_received(
                {key.lower(): value for key, value in response_dict["headers"].items()}.get("date")
            )


@contextmanager
def errors(target: AwsTarget) -> Iterator[None]:
    """Translate boto3's errors into hipq's."""
    try:
        from botocore import exceptions as boto

        from hipq.transports.aws import translated
    except ModuleNotFoundError:
        raise Invalid(MISSING) from None
    try:
        yield
    except (boto.BotoCoreError, boto.ClientError, ValueError) as error:
        if isinstance(error, HipqError):
            raise
        raise translated(target, error) from error
    except KeyError as error:  # the answer came from a proxy or a login page
        raise TransportUnavailable(
            f"{target}: what answered is not AWS, by what it said; is endpoint_url right?"
        ) from error


def code(error: BaseException | None) -> str:
    """AWS's error code; "" if AWS did not answer."""
    while isinstance(error, HipqError):
        error = error.__cause__
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))
