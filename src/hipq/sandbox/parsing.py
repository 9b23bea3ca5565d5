"""Whether a handler's code can be parsed by its language: asked of the language itself, where handlers run."""

from __future__ import annotations

import re
import threading
from typing import Final

from msgspec.structs import replace

from hipq.errors import CannotRun
from hipq.sandbox.context import Context
from hipq.sandbox.handler import Handler
from hipq.sandbox.link import Gone
from hipq.sandbox.output import Output, escaped
from hipq.sandbox.settings import ContextSettings
from hipq.sandbox.starting import Spawner

CHECKED: Final = ("python", "node", "php")
"""The languages that parse all of a handler before they run any of it."""
PARTS: Final = ("body", "before", "beforeEach", "afterEach")
SECONDS: Final = 10.0
_LINE: Final = re.compile(r"^<\S+ body>:(\d+)$|eval\(\)'d code:(\d+)$", re.MULTILINE)
"""How node and PHP name the line, above or in their traces."""
_at_once = threading.BoundedSemaphore(2)


def wrong_with(handler: Handler, settings: ContextSettings) -> str:
    """What is wrong with the code, in one sentence with the line; empty if nothing is wrong, or if it cannot be
    checked here and now. None of the code runs: each part is loaded as the body of a function that nobody calls."""
    if handler.lang not in CHECKED or not _at_once.acquire(timeout=SECONDS):
        return ""
    spawner = Spawner()
    try:
        context = Context(handler.lang, settings, spawner)
        try:
            return next(filter(None, (_of_part(context, handler, part) for part in PARTS)), "")
        finally:
            context.retire()
    except (CannotRun, Gone):
        return ""  # a handler that cannot run here may run at another daemon
    finally:
        spawner.close()
        _at_once.release()


def _of_part(context: Context, handler: Handler, part: str) -> str:
    source = getattr(handler, part)
    if not source:
        return ""
    alone = replace(handler, id=f"{handler.id} {part}", body=source, before="", beforeEach="", afterEach="")
    output = Output()
    reply = context.prepare(alone, SECONDS, output)
    if reply is None:
        return ""
    output.finish()
    said = reply.error or output.log.strip()[-300:] or f"status {reply.status}"
    line = _LINE.search(output.log)
    if line and "(line " not in said:
        said += f" (line {line[1] or line[2]})"
    return escaped(f"the handler's {part} is not {handler.lang}: {said}")[:500]
