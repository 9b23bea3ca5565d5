"""The output of a job: `J: jobtype|payload` lines are jobs, all others are log. The memory for it is bounded."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

from hipq.sandbox.handler import NAME
from hipq.sandbox.secrets import NO_SECRETS, Secrets

MARK: Final = b"J: "
MOST_LINE: Final = 1 << 20
"""Bytes of a line; the rest of a longer one is dropped."""
MOST_SPAWNED: Final = 10_000
MOST_LOG: Final = 8 << 10
"""Bytes of log that are kept: the last ones."""
CUT: Final = "[... cut ...]\n"
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that could mislead a reader of the log or move the cursor. Line ends are hipq's own, tabs are harmless."""


def escaped(text: str) -> str:
    return _CONTROL.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}", text
    )


class LineSplitter:
    """Splits a stream into lines, holding no more than one line's beginning."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._cut = False
        """Whether a part of the current line was dropped because it is too long."""

    def feed(self, block: bytes) -> tuple[bytes | None, bool, bytes]:
        """The first line that ended, if one did, and whether it was truncated; and all lines after it, as one piece."""
        first, newline, rest = block.partition(b"\n")
        self._take(first)
        if not newline:
            return None, False, b""
        ended = bytes(self._begun), self._cut
        whole, _, begun = rest.rpartition(b"\n")
        self._begun[:], self._cut = begun, False
        return *ended, whole + b"\n" if len(begun) < len(rest) else b""

    def finish(self) -> tuple[bytes | None, bool]:
        """The last line, even without a newline at its end."""
        ended = bytes(self._begun) or None, self._cut
        self._begun.clear()
        self._cut = False
        return ended

    def _take(self, piece: bytes) -> None:
        room = MOST_LINE - len(self._begun)
        self._cut = self._cut or len(piece) > room
        self._begun += piece[:room]


class Output:
    """The output of one job. The number of lines costs neither work nor memory, except for lines that are jobs."""

    def __init__(self, secrets: Secrets = NO_SECRETS) -> None:
        self._secrets = secrets
        self.bytes = 0
        self.spawned: list[tuple[str, bytes]] = []
        self.too_many = False
        """Whether it added more jobs than one may: then none are added."""
        self._streams = (LineSplitter(), LineSplitter())
        self._marked = 0
        """The number of lines with the mark, valid or not."""
        self.told: Callable[[bytes], None] | None = None
        """Is called with whole lines of log, as they come."""
        self._log: deque[bytes] = deque()
        """Whole lines of log, with their ends."""
        self._logged = 0
        self._cut = False

    def feed(self, stream: int, block: bytes) -> None:
        """Add output. `stream` is 0 for standard output, 1 for standard error."""
        self.bytes += len(block)
        first, cut, more = self._streams[stream].feed(block)
        if first is not None:
            self._line(stream, first, cut)
        if more:
            self._lines(stream, more)

    def finish(self, *, killed: bool = False) -> None:
        """There is no more; if it was `killed`, in the middle of a line perhaps."""
        for stream in (0, 1):
            line, cut = self._streams[stream].finish()
            if line is not None:
                self._line(stream, self._secrets.mask(line, cut=killed), cut)

    @property
    def log(self) -> str:
        text = escaped(b"".join(self._log).decode("utf-8", "backslashreplace")).removesuffix("\n")
        if len(text) > MOST_LOG:  # escaping has made it longer
            return CUT + text[-MOST_LOG:]
        return CUT + text if self._cut else text

    def note(self, text: str) -> None:
        """Add a message of hipq's to the log."""
        self._keep(b"[hipq: " + text.encode() + b"]\n")

    def _lines(self, stream: int, lines: bytes) -> None:
        """Add many lines: only those with the mark are looked at one by one."""
        at = 0
        while stream == 0 and not self.too_many:
            mark = at if lines.startswith(MARK, at) else lines.find(b"\n" + MARK, at) + 1
            if (mark == 0 and at != mark) or not lines.startswith(MARK, mark):
                break
            if mark > at:
                self._keep(lines[at:mark])
            at = lines.index(b"\n", mark) + 1
            self._line(stream, lines[mark : at - 1], cut=False)
        if at < len(lines):
            self._keep(lines[at:])

    def _line(self, stream: int, line: bytes, cut: bool) -> None:
        if cut:
            line = self._secrets.mask(line, cut=True)
        if stream == 0 and line.startswith(MARK) and not self.too_many:
            if self._marked < MOST_SPAWNED:
                self._spawn(line, cut)
                return
            self.too_many, self.spawned = True, []
            self.note(f"none of these is added: {MOST_SPAWNED:,} jobs is all a job may ask for")
        self._keep(line + b"\n")
        if cut:
            self.note(f"the line above was longer than {MOST_LINE:,} bytes")

    def _spawn(self, line: bytes, cut: bool) -> None:
        line = self._secrets.mask(line)  # before it is cut: half a secret would not be found
        name, bar, payload = line[len(MARK) :].partition(b"|")
        jobtype = name.decode("ascii", "replace")
        if cut:  # half a payload is no payload
            self._refuse(line, f"no job: a line may have {MOST_LINE:,} bytes")
        elif not bar or not NAME.fullmatch(jobtype):
            self._refuse(line, "no job: it should be `J: jobtype|payload`")
        else:
            self.spawned.append((jobtype, payload))
        self._marked += 1

    def _refuse(self, line: bytes, why: str) -> None:
        self._keep(line[:200] + b"\n")
        self.note(why)

    def _keep(self, lines: bytes) -> None:
        lines = self._secrets.mask(lines)  # before it is cut: half a secret would not be found
        if self.told:
            self.told(lines)
        if len(lines) > MOST_LOG:
            lines, self._cut = lines[-MOST_LOG:], True
        self._log.append(lines)
        self._logged += len(lines)
        while self._logged - len(self._log[0]) >= MOST_LOG:
            self._logged -= len(self._log.popleft())
            self._cut = True
