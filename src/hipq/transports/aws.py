"""What SQS and Kinesis share: the server's address, the credentials, and the meaning of errors.

Credentials are found where boto3 always looks: the environment, ~/.aws, the machine's role. The URL may have them too,
`sqs://KEY:SECRET@/QUEUE`.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.loaders import create_loader

from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.transports.address import EXAMPLES, Address

OPTIONS: Final = frozenset({"region", "endpoint", "group"})
STEPS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0)
"""The time-outs in seconds that clients are made for; a sender's is rounded down to one of them."""
CONNECTIONS: Final = 256
"""Connections kept open at most. With more threads than that the client library warns at each message."""

_descriptions: Final = create_loader()
"""The library's descriptions of the services, loaded once because nothing else takes as long."""

_MISSING: Final = frozenset(
    {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "ResourceNotFoundException"}
)
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_STRANGER: Final = frozenset(
    {
        "401", "403", "AuthFailure", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature",
        "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidSignatureException", "MissingAuthenticationToken",
        "SignatureDoesNotMatch", "UnrecognizedClientException",
    }
)  # fmt: skip
_NEVER: Final = frozenset(
    {
        "BatchRequestTooLong", "InvalidArgumentException", "InvalidAttributeValue", "InvalidMessageContents",
        "InvalidParameterValue", "InvalidParameterValueException", "MissingParameter", "ValidationException",
    }
)  # fmt: skip

T = TypeVar("T")


def check(address: Address, options: frozenset[str], names: re.Pattern[str], rule: str) -> None:
    """Refuse an address that can never work, without connecting."""
    if address.hosts and not (address.scheme == "sqs" and re.fullmatch("[0-9]{12}", address.hosts)):
        # The text may be half of a secret with a "/" in it, so it is not shown.
        raise Invalid(
            f"{address.scheme}://… takes no server, only a name, like {EXAMPLES[address.scheme]}; "
            "another server is endpoint=http://…, and a / in a secret is written %2F"
        )
    address.allow(OPTIONS | options)
    if not names.fullmatch(address.name):
        raise address.invalid(rule)
    if bool(address.user) != bool(address.password):
        raise address.invalid("needs both an access key and its secret, or neither")
    region, endpoint = address.options.get("region"), address.options.get("endpoint")
    if region is not None and not re.fullmatch("[a-z0-9-]{1,40}", region):
        raise address.invalid(f"region must be the name of one, like eu-west-1, not {region!r:.40}")
    if endpoint is not None and not re.fullmatch(r"https?://[^/?#@\s]+/?", endpoint):
        raise address.invalid("endpoint must be the URL of a server, like http://127.0.0.1:5000")


def client(address: Address, *, connect: float, read: float, attempts: int) -> Any:
    """A thread-safe client of the service. It looks for credentials, which may take a second."""
    config = Config(
        connect_timeout=connect, read_timeout=read, retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=CONNECTIONS, tcp_keepalive=True,
    )  # fmt: skip
    with errors(address):
        session = botocore.session.Session()  # a new session sees credentials that were changed meanwhile
        session.register_component("data_loader", _descriptions)
        region, endpoint = address.options.get("region"), address.options.get("endpoint")
        login = {"aws_access_key_id": address.user or None, "aws_secret_access_key": address.password or None}
        return session.create_client(address.scheme, region_name=region, endpoint_url=endpoint, config=config, **login)


class AwsSender:
    """The clients of a sender, one for each time-out, because the library fixes a client's time-out when it is made.
    Each client tries once only: a message that was tried twice may have been sent twice."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._made: dict[float, Any] = {}

    def _within(self, seconds: float) -> Any:
        """The client that gives up after `seconds`; a twentieth more does not matter."""
        step = max((one for one in STEPS if one <= seconds * 1.05), default=STEPS[0])
        with self._lock:
            if step not in self._made:
                self._made[step] = client(self._address, connect=step / 3, read=step * 2 / 3, attempts=1)
            return self._made[step]

    def close(self) -> None:
        with self._lock:
            for one in self._made.values():
                with suppress(Exception):
                    one.close()
            self._made.clear()


class AwsSource:
    """The client of a source, and threads for requests in parallel; all are made when they are first needed."""

    def __init__(self, address: Address, threads: int) -> None:
        self._address = address
        self._client: Any = None
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"hipq-{address.scheme}")

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        if self._client is not None:
            with suppress(Exception):
                self._client.close()

    def _each(self, work: Callable[[T], Any], items: Iterable[T]) -> list[Future[Any]]:
        """Do all of the work in parallel, and wait until none of it runs any more. After one failure no other item
        begins, so that a dead server is waited for once."""
        failed = threading.Event()

        def one(item: T) -> Any:
            if failed.is_set():
                raise CancelledError
            try:
                return work(item)
            except BaseException:
                failed.set()
                raise

        futures = [self._threads.submit(one, item) for item in items]
        wait(futures)
        return futures


@contextmanager
def errors(address: Address) -> Iterator[None]:
    """Translate the library's errors into hipq's."""
    try:
        yield
    except (boto.BotoCoreError, boto.ClientError, ValueError) as error:
        if isinstance(error, HipqError):
            raise
        raise translated(address, error) from None


def code(error: Exception) -> str:
    """The server's error code; "" if the server did not answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, boto.ClientError) else ""


def translated(target: Any, error: Exception) -> HipqError:
    """The error in one sentence: what is wrong, and what to do. `target`: what was used, an `Address` or the waiter's
    like of it; its text is the name users know."""
    kind: type[HipqError] = TransportUnavailable
    why = _line(error)
    match error:
        case boto.ClientError():
            kind, why = _said(target.scheme, error)
        case boto.NoRegionError():
            kind, why = Invalid, "in which region? Add ?region=eu-west-1 or set AWS_DEFAULT_REGION"
        case boto.NoCredentialsError() | boto.PartialCredentialsError() | boto.CredentialRetrievalError():
            why = (
                "found no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role"
            )
        case boto.EndpointConnectionError():
            why = _unreachable(error)
        case boto.ConnectTimeoutError() | boto.ReadTimeoutError():
            why = f"{_server(error)} did not answer in time"
        case boto.ConnectionClosedError():
            why = f"{_server(error)} closed the connection without an answer"
        case boto.ProfileNotFound() | boto.ParamValidationError() | ValueError():
            kind = Invalid
    return kind(f"{target}: {why}")


def _said(scheme: str, error: boto.ClientError) -> tuple[type[HipqError], str]:
    name, said = code(error), _line(error.response.get("Error", {}).get("Message", ""))
    if name in _MISSING:
        kind = {"sqs": "queue", "dynamodb": "table"}.get(scheme, "stream")
        return TransportUnavailable, f"there is no such {kind} in this account and region; create it first"
    if name in _DENIED:
        return TransportUnavailable, f"these AWS credentials may not do that: {said}"
    if name in _STRANGER:
        return TransportUnavailable, f"AWS does not accept these credentials ({name})"
    if name in _NEVER:
        return Invalid, f"AWS refused it for good: {said}"
    return TransportUnavailable, f"AWS said {name or 'nothing'}{': ' if said else ''}{said}"


def _unreachable(error: Any) -> str:
    why = error.kwargs.get("error")
    root = getattr(why, "__cause__", None) or why
    if isinstance(root, ConnectionRefusedError):
        return f"nobody listens at {_server(error)} (connection refused)"
    if isinstance(root, socket.gaierror):
        return f"there is no host {_server(error)} (unknown name); look at region and endpoint"
    return f"{_server(error)} cannot be reached ({_line(root)})"


def _server(error: Any) -> str:
    return urlsplit(str(error.kwargs.get("endpoint_url", ""))).netloc or "the server"


def _line(said: object) -> str:
    return " ".join(str(said).split())[:200]
