"""`hipq.callbacks(app)`: an ASGI application that takes the answers brought to callback URLs. `POST .../{token}`.

    signature -> size -> body -> expiry -> the job as it is now -> come -> commit -> HTTP status

Whoever calls hears 200 or 202 after the commit and not before, and each refusal in one sentence.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import MutableMapping
from typing import Any, Final

from hipq.callback import RATE, SIZE, http
from hipq.callback.deliver import AnswerApp, AnswerBatches, AnswerDelivery
from hipq.callback.http import CallbackReply, Receive, Send
from hipq.callback.rate_buckets import RateBuckets
from hipq.callback.signing import Forbidden, SignedClaims
from hipq.callback.webhook import Webhook
from hipq.job.event_names import ListenerEvent
from hipq.job.names import whole
from hipq.job.payload import SIZE_LIMIT
from hipq.job.when import seconds
from hipq.transports.webhooks import BadSignature

HELD: Final = 64 << 20
"""Bytes of all bodies in memory at once, arriving or waiting."""
FORGED: Final = 10.0
"""The number of calls that a bad signature counts as."""

Scope = MutableMapping[str, Any]
_LONG: Final = re.compile("([^/]{6})[^/]{30,}")
_log = logging.getLogger("hipq")


def callbacks(app: AnswerApp, *, size: int = SIZE, rate: float = RATE) -> Callbacks:
    """An ASGI application that receives callbacks, to be mounted in another one or run alone. `size`: the largest
    answer in bytes. `rate`: calls a second from one address; 0 = any number."""
    whole(size, "size", 1, SIZE_LIMIT)
    return Callbacks(app, size, seconds(rate, "rate"))


class Callbacks:
    def __init__(self, app: AnswerApp, size: int, rate: float) -> None:
        self._app = app
        self._size = size
        self._buckets = RateBuckets(rate)
        self._delivery = AnswerDelivery(app)
        self._batches = AnswerBatches(self._delivery.deliver)
        self._held = 0
        self._is_open = False
        self._looking: asyncio.Task[Any] | None = None
        self._warned_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            try:
                reply = await self._taken(scope, receive)
            except http.ClientGone:
                return
            except Exception as error:
                reply = http.refusal(error)
                self._tell(reply, error)
            await reply.write(send)

    def _tell(self, reply: CallbackReply, error: Exception) -> None:
        if reply.status == 500:
            _log.error("callback failed", exc_info=error)
        # logged once in a while: thousands of calls may have the same reason
        elif reply.status == 503 and time.monotonic() - self._warned_at >= 1:
            self._warned_at = time.monotonic()
            _log.warning("callback failed: %s", error)
        else:
            _log.debug("callback refused: %d %s", reply.status, reply.body["error"])

    async def _taken(self, scope: Scope, receive: Receive) -> CallbackReply:
        token = self._token(scope)
        if not token:
            return CallbackReply(404, {"error": "there is nothing here"})
        if scope["method"] != "POST":
            return CallbackReply(405, {"error": "an answer is brought by POST"}, ((b"allow", b"POST"),))
        address = (scope.get("client") or ("", 0))[0]
        if not self._buckets.take(address):
            return CallbackReply(429, {"error": "too many calls from this address"}, http.AGAIN)
        webhook = self._app.streams.webhooks.get(token)
        claims = None if webhook else await self._claims(token, address)
        request = http.CallbackRequest(scope)
        if request.length > self._size:
            raise http.too_large(self._size)
        body = bytearray()
        try:
            await http.read_body(receive, body, self._size, self._hold)
            if webhook:
                return await self._webhook(webhook, request, bytes(body), address)
            assert claims is not None
            outcome = await self._batches.deliver(lambda: self._delivery.made(claims, request, body))
        finally:
            self._held -= len(body)
        _log.debug("callback job=%d attempt=%d answer=%s", claims.job, claims.attempt, outcome)
        return http.accepted(outcome)

    async def _webhook(
        self, webhook: Webhook, request: http.CallbackRequest, body: bytes, address: str
    ) -> CallbackReply:
        now = time.time()
        try:
            message = webhook.message(request.headers, body, now)
        except BadSignature as error:
            self._buckets.charge(address, FORGED - 1)
            refused, at = ListenerEvent.WEBHOOK_REFUSED, round(now * 1e6)
            self._app.events.emit(refused, at, webhook.queue, listener=webhook.listener, error=str(error))
            raise
        outcome = await self._batches.deliver(lambda: webhook.answer(message, self._app.store.now()))
        _log.debug("webhook %s answer=%s", webhook.name, outcome)
        return http.webhook_accepted(outcome)

    def _token(self, scope: Scope) -> str:
        """The token, which is the last part of the path. It is removed from the path, because servers log the path
        with the reply."""
        token: str = scope["path"].rstrip("/").rpartition("/")[2]
        scope["path"] = _LONG.sub(r"\1...", scope["path"])
        scope["raw_path"] = scope["path"].encode("utf-8", "replace")
        return token

    async def _claims(self, token: str, address: str) -> SignedClaims:
        if not self._is_open or self._app.signer.must_look(token):
            await self._look()
        try:
            return self._app.signer.read(token)
        except Forbidden:
            self._buckets.charge(address, FORGED - 1)
            raise

    async def _look(self) -> None:
        """Look for new keys, in one thread for all requests that need them: threads are shared with other
        applications."""
        loop = asyncio.get_running_loop()
        if self._looking is None or self._looking.done() or self._looking.get_loop() is not loop:
            # it opens the database
            self._looking = loop.create_task(asyncio.to_thread(lambda: self._app.signer.keys()))
        await asyncio.shield(self._looking)
        self._is_open = True

    def _hold(self, size: int) -> None:
        if self._held + size > HELD:
            raise http.Overloaded
        self._held += size


async def _live(receive: Receive, send: Send) -> None:
    """Tell a starting or stopping server that all is well: the first callback opens the database."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
