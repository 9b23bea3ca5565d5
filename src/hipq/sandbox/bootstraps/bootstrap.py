"""Runs Python handlers, one job after the other. Alone in its process: nothing of hipq is there.

Descriptors 3 and 5 are the private channel: lines of JSON come in, lines of JSON and counted bytes go out. Descriptor 4
has the payloads. See docs/handlers-in-other-languages.md.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

ASKS, PAYLOADS, ANSWERS = 3, 4, 5
MOST_DATA = 16 << 20
MOST_ERROR = 4000
HOME = os.getpid()
TOP_LEVEL_AWAIT = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)


class Job:
    """What a handler knows about its job beside the payload."""

    __slots__ = ("attempt", "id", "type")

    def __init__(self, job_id: str, type: str, attempt: int) -> None:
        self.id, self.type, self.attempt = job_id, type, attempt

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, type={self.type!r}, attempt={self.attempt})"


class Handler:
    """The code of one version of one job type, compiled, and its globals."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.type = message["type"]
        self.scope: dict[str, Any] = {"__name__": "handler", "__builtins__": __builtins__}
        self.function = self._compile_body(message["body"])
        self.before_each = self._compile(message["beforeEach"], "beforeEach")
        self.after_each = self._compile(message["afterEach"], "afterEach")
        self.run(self._compile(message["before"], "before"))

    def _parse(self, source: str, part: str) -> tuple[ast.Module, str]:
        """The syntax tree, and a file name under which tracebacks find the source."""
        import linecache

        name = f"<{self.type} {part}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        try:
            return ast.parse(source, name), name
        except IndentationError:
            import textwrap

            return ast.parse(textwrap.dedent(source), name), name

    def _compile(self, source: str, part: str) -> types.CodeType | None:
        if not source.strip():
            return None
        code: types.CodeType = compile(*self._parse(source, part), "exec", flags=TOP_LEVEL_AWAIT)
        return code

    def _compile_body(self, source: str) -> Callable[[Any, Job], Any]:
        """`def handle(payload, job)`, or `async def` if it cannot be the former. Built as a syntax tree: indenting
        the text would change its strings."""
        parsed, name = self._parse(source, "body")
        try:
            return self._function("def", parsed.body, name)
        except SyntaxError as wrong:
            try:
                return self._function("async def", parsed.body, name)
            except SyntaxError:
                raise wrong from None

    def _function(self, head: str, body: list[ast.stmt], name: str) -> Callable[[Any, Job], Any]:
        tree = ast.parse(f"{head} handle(payload, job): pass")
        (function,) = tree.body
        assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        function.body = body or function.body
        exec(compile(tree, name, "exec"), self.scope)
        made: Callable[[Any, Job], Any] = self.scope.pop("handle")
        return made

    def run(self, code: types.CodeType | None) -> None:
        if code is not None:
            finish(eval(code, self.scope))


_loop: Any = None


def finish(result: Any) -> Any:
    """Wait for the result if it is a coroutine's."""
    global _loop
    if not isinstance(result, types.CoroutineType):
        return result
    if _loop is None or _loop.is_closed():
        import asyncio

        _loop = asyncio.new_event_loop()
        asyncio.set_event_loop(_loop)
    return _loop.run_until_complete(result)


def encoded(data: Any) -> bytes:
    if data is None:
        return b""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def understood(result: Any) -> tuple[int, bytes]:
    """The return value as a status and data."""
    if result is None:
        return 200, b""
    if is_whole(result):
        return small(result), b""
    if isinstance(result, (tuple, list)) and len(result) == 2 and is_whole(result[0]):
        return small(result[0]), encoded(result[1])
    return 200, encoded(result)


def small(status: int) -> int:
    """The status in a size that can be sent: an invalid one may have too many digits."""
    return int(status) if -1_000_000 < status < 1_000_000 else 0


def exit_status(code: Any) -> tuple[int, str]:
    """The status for sys.exit() in a handler, which ends the job and not the context."""
    if code is not None and not is_whole(code):
        return 501, str(code)[:MOST_ERROR]
    code = (code or 0) & 255
    if code == 0:
        return 200, ""
    return {65: 465, 75: 175}.get(code, 500 + min(code, 99)), f"it exited with status {code}"


def attempted(function: Callable[..., Any], *arguments: Any) -> tuple[int, bytes, str]:
    """(status, data, error) of calling a function of the handler."""
    try:
        status, data = understood(finish(function(*arguments)))
        if len(data) > MOST_DATA:
            return 413, b"", f"it returned {len(data):,} bytes; {MOST_DATA:,} are allowed"
        return status, data, ""
    except SystemExit as error:
        status, text = exit_status(error.code)
        return status, b"", text
    except BaseException as error:
        return 500, b"", described(error)


def described(error: BaseException) -> str:
    """The exception's name and message; its traceback goes to the log."""
    try:
        while error.__traceback__ and error.__traceback__.tb_frame.f_code.co_filename == __file__:
            error.__traceback__ = error.__traceback__.tb_next
        traceback.print_exception(type(error), error, error.__traceback__)
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
    except BaseException:
        text = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} (line {error.lineno})"[:MOST_ERROR]
    return text[:MOST_ERROR]


def outputs() -> list[int]:
    """The pipes of standard output and error: a handler may close them, and other files get their numbers."""
    try:
        return [os.fstat(number).st_ino for number in (1, 2)]
    except OSError:
        return []


_outputs = outputs()


def say(kind: str, status: int = 200, data: bytes = b"", error: str = "", retire: bool = False) -> None:
    """Send a reply to the daemon, after the output that was printed before."""
    if os.getpid() != HOME:
        os._exit(0)  # a child that the handler forked has returned here: only one process may reply
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()  # type: ignore[union-attr]  # None, or closed
        except BaseException:
            retire = True  # the handler closed it: the next job could not print
    retire = retire or outputs() != _outputs
    said = {"kind": kind, "status": status, "size": len(data), "error": error, "retire": retire}
    rest = memoryview(json.dumps(said).encode() + b"\n" + data)
    while rest:
        rest = rest[os.write(ANSWERS, rest) :]


def run_job(handler: Handler, raw: bytes, message: dict[str, Any]) -> None:
    os.write(ANSWERS, b'{"kind":"begun"}\n')
    try:
        payload: str | bytes = raw.decode()
    except UnicodeDecodeError:
        payload = raw
    status, data, error = attempted(handler.function, payload, Job(message["id"], handler.type, message["attempt"]))
    say("done", status, data, error)


def load(handlers: dict[int, Handler], message: dict[str, Any]) -> None:
    def made() -> None:
        handlers[message["handler"]] = Handler(message)

    status, _, error = attempted(made)
    say("done", status, b"", error)


def main() -> None:
    for descriptor in (ASKS, PAYLOADS, ANSWERS):
        os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=lambda: os.closerange(ASKS, ANSWERS + 1))
    # line by line, because output lost in a crash is what one wants to read then
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    sys.path[:] = [path for path in sys.path if path]
    handlers: dict[int, Handler] = {}
    asks, payloads = os.fdopen(ASKS, "rb", closefd=False), os.fdopen(PAYLOADS, "rb", closefd=False)
    say("hello")
    for line in asks:
        message = json.loads(line)
        do = message["do"]
        if do == "job":
            raw = payloads.read(message["size"] + 1)
            if len(raw) <= message["size"]:
                break
            run_job(handlers[message["handler"]], raw[:-1], message)
        elif do == "load":
            load(handlers, message)
        elif do == "forget":
            handlers.pop(message["handler"], None)
        else:
            handler = handlers[message["handler"]]
            status, _, error = attempted(handler.run, handler.before_each if do == "begin" else handler.after_each)
            say("done", status, b"", error)
    os._exit(0)  # the daemon is gone


main()
