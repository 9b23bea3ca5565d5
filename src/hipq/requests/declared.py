"""A job type without code: its handler is a request that is declared.

charge = orders.request("charge", to="https://bank.example/charges/{key}", answers="kafka://payments.in", key="ref")
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from hipq.errors import Invalid, shown
from hipq.job import payload
from hipq.job.json_path import steps
from hipq.job.outcome import Failed, Ok, Retry, Wait
from hipq.job.view import Job, sends
from hipq.requests.reply import ReplyKey, outcome
from hipq.requests.template import BodyTemplate, HeaderTemplate, Template, UrlTemplate
from hipq.transports import SECONDS, address, check, sender
from hipq.transports.base import CALLBACK_HEADER, HEADER_NAME, Outgoing, headers_of
from hipq.transports.webhooks import ID, SIGNATURE, TIMESTAMP, WebhookSecrets

METHODS: Final = ("POST", "PUT", "PATCH", "GET", "DELETE")


class Request:
    """Sends a job's request, once for each attempt, and turns the reply into the job's outcome."""

    def __init__(
        self,
        to: str,
        *,
        answered: bool,
        callback: bool = False,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        sign: str = "",
        reply_key: ReplyKey | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._is_http = isinstance(to, str) and to.startswith(("http://", "https://"))
        self._headers = {name.lower(): HeaderTemplate(value, name) for name, value in _checked(headers, sign).items()}
        self._body = BodyTemplate(body)
        self._seconds = seconds
        self._method = method
        self._reply_key = reply_key
        self._secrets = WebhookSecrets(sign, "sign") if sign else None
        if self._is_http:
            self._url: UrlTemplate | str = UrlTemplate(to)
            _check_http(method, reply_key)
        else:
            self._url = to
            check(address(to))
            if method != "POST" or reply_key is not None or sign:
                raise Invalid("method, reply_key and sign are for requests by HTTP: a message has none of them")
        self.called_back = callback or "callback_url" in self._names()
        """Whether it tells the service a URL for the answer."""
        if self.called_back and reply_key is not None:
            raise Invalid("a callback finds its job by the URL: with one, there is no reply_key to look for")
        self.waits = answered or self.called_back
        """Whether the answer arrives by another way: then the job waits for it, whatever the reply says."""

    def _names(self) -> set[str]:
        """What the templates take from a job."""
        templates = [one for one in (*self._headers.values(), self._url) if isinstance(one, Template)]
        return set(self._body.names).union(*(one.names for one in templates))

    def __call__(self, job: Job[Any]) -> Ok | Failed | Retry | Wait:
        values: dict[str, Any] = {"key": job.key, "id": str(job.id), "attempt": job.attempt, "data": job.data}
        headers = headers_of(job)
        if self.called_back:
            values["callback_url"] = headers[CALLBACK_HEADER] = job.callback_url()
        try:
            headers |= {name: template.fill(values) for name, template in self._headers.items()}
            body = payload.encode(self._body.fill(values), "the request").encode()
            url = self._url.fill(values) if isinstance(self._url, UrlTemplate) else self._url
        except Invalid as error:  # it would be the same at every attempt
            return Failed(str(error))
        sends(job, self.target)
        if self._is_http:
            return self._by_http(url, body, headers, job)
        sender(url).send(Outgoing(body, job.key, headers), self._seconds)
        return Wait() if self.waits else Ok()

    def _by_http(self, url: str, body: bytes, headers: dict[str, str], job: Job[Any]) -> Ok | Failed | Retry | Wait:
        from hipq.transports import http  # imported late: it needs its library

        has_body = self._method not in ("GET", "DELETE")
        headers = {"content-type": "application/json", **headers} if has_body else headers
        body = body if has_body else b""
        if self._secrets:
            headers |= self._secrets.sign(webhook_id(job), int(time.time()), body)
        reply = http.request(self._method, url, body, headers, self._seconds)
        return outcome(reply, waits=self.waits, reply_key=self._reply_key)

    @property
    def target(self) -> str:
        """Where it goes, for people: the server or the stream. The rest of a URL may be secret."""
        if isinstance(self._url, UrlTemplate):
            return f"{self._method} {self._url!r}"
        return str(address(self._url))

    @property
    def header_names(self) -> tuple[str, ...]:
        """The headers that it is declared with. Their values may be secret."""
        return tuple(self._headers)

    def shown_header(self, name: str, values: Mapping[str, Any]) -> str:
        """The value of one of these headers, for people: values may have signs of a mask, which HTTP has not."""
        return Template.fill(self._headers[name], values)

    @property
    def is_signed(self) -> bool:
        return self._secrets is not None

    def __repr__(self) -> str:
        return f"<Request {self.target}>"


def webhook_id(job: Job[Any]) -> str:
    """The `webhook-id` of a job's request: the same at every attempt, and different for each job of each database."""
    what = repr((job.id, job.type, job.key, job.create_time.isoformat()))
    return f"msg_{blake2b(what.encode(), digest_size=16).hexdigest()}"


def _check_http(method: str, reply_key: ReplyKey | None) -> None:
    if method not in METHODS:
        raise Invalid(f"method must be one of {', '.join(METHODS)}, not {shown(method)}")
    if isinstance(reply_key, str):
        steps(reply_key)


def _checked(headers: Mapping[str, str] | None, sign: str) -> Mapping[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping) or not all(isinstance(name, str) for name in headers):
        raise Invalid(f"headers must be a mapping of names to values, not a {type(headers).__name__}")
    for name in headers:
        if not HEADER_NAME.fullmatch(name):
            raise Invalid(f"{shown(name)} is no name of a header")
        if sign and name.lower() in (ID, TIMESTAMP, SIGNATURE):
            raise Invalid(f"sign makes the headers {ID}, {TIMESTAMP} and {SIGNATURE}: leave them out of headers")
    return headers
