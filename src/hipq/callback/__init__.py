"""Answers that an outside service sends by HTTP, to a signed URL that is valid for one job.

`signing` makes and checks the signed tokens; `asgi` is the application that receives the answers, `hipq.callbacks`.
Nothing is imported here, so that a program that only signs URLs loads no event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipq.callback.deliver import AnswerApp

SIZE = 1 << 20
"""The largest answer in bytes, by default."""
RATE = 1000
"""Calls a second from one address, by default."""


def callbacks(app: AnswerApp, *, size: int = SIZE, rate: float = RATE) -> Any:
    """An ASGI application that takes the answers brought to `job.callback_url()`: mount it where `callback_url` of your
    Hipq says. `size`: bytes an answer may have. `rate`: answers in a second from one address; 0 = any number."""
    from hipq.callback.asgi import callbacks as made  # most programs are not called back

    return made(app, size=size, rate=rate)
