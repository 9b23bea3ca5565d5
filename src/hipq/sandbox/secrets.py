"""Secrets of a tenant on their way into its contexts, and what keeps them out of whatever comes back."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from functools import cached_property
from typing import Final

LEAST: Final = 8
"""Characters of a secret, and of each of its lines that is masked wherever it stands."""
LEAST_ALONE: Final = 4
"""Characters of a shorter line of a secret that is masked where it is a whole line: in others it may be a mere word."""

_DIGIT: Final = rb"[A-Za-z0-9+/_-]"
"""A digit of base64."""
_MOST_PLAIN: Final = 2
"""Bytes of a letter or digit, at most: in hexadecimal."""
_MOST_QUOTED: Final = 24
"""Bytes of any other letter: escaped, and quoted so often that people would not read it."""
_SHORT: Final = {"\n": b"n", "\r": b"r", "\t": b"t"}


class Secrets:
    """Values by their names. They are in no message and no trace: only `values` has them."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values: Mapping[str, str] = values or {}

    def __repr__(self) -> str:
        return f"<Secrets {', '.join(self.values)}>"

    def __bool__(self) -> bool:
        return bool(self.values)

    def mask(self, data: bytes, *, cut: bool = False) -> bytes:
        """The same, with each secret replaced by its name. `cut`: more came behind it, which is not at hand. Then its
        end goes, too: the first half of a secret, which is not recognised, may be there."""
        for name, pattern in self._patterns:
            data = pattern.sub(name, data)
        return data[: max(len(data) - self._longest, 0)] if cut and self.values else data

    def mask_text(self, text: str, *, cut: bool = False) -> str:
        if not self.values:
            return text
        return self.mask(text.encode("utf-8", "surrogatepass"), cut=cut).decode("utf-8", "replace")

    @cached_property
    def _longest(self) -> int:
        """Bytes that the longest secret may have as somebody spells it."""
        return max((sum(_MOST_QUOTED if len(one.encode()) > 1 or not one.isalnum() else _MOST_PLAIN for one in value)
                    for value in self.values.values()), default=0)  # fmt: skip

    @cached_property
    def _patterns(self) -> list[tuple[bytes, re.Pattern[bytes]]]:
        """The longest first: one that begins with another is masked whole."""
        ordered = sorted(self.values.items(), key=lambda one: -len(one[1]))
        return [(f"[secret {name}]".encode(), re.compile(_spellings(value))) for name, value in ordered]


NO_SECRETS: Final = Secrets()


def _spellings(value: str) -> bytes:
    """A secret as handlers print it by mistake: as it is, in quotes of any language, in JSON, in a URL, in hexadecimal,
    in base64, there with others around it. Its lines count by themselves, since what is printed comes line by line."""
    lines = [line.strip() for line in value.splitlines()]
    pieces = dict.fromkeys([value, value.strip(), *(line for line in lines if len(line) >= LEAST)])
    found = [b"".join(map(_letter, piece)) for piece in pieces]
    for piece in map(str.encode, pieces):
        found += [_base64(piece, before) for before in range(3)]
        found.append(b"(?i:%s)" % piece.hex().encode())
    short = {line for line in lines if LEAST_ALONE <= len(line) < LEAST}
    found += [rb"(?m:^[ \t]*%s[ \t\r]*$)" % re.escape(line.encode()) for line in sorted(short)]
    return b"|".join(found)


def _base64(piece: bytes, before: int) -> bytes:
    """A piece of what was encoded, of which so many bytes, modulo 3, are before it: as in a header of Basic
    authorization. The digits at either end are partly of what is around it, which nobody knows."""
    first, end = -(-before * 8 // 6), (before + len(piece)) * 8 // 6
    plain, url = (re.escape(encode(bytes(before) + piece)[first:end]) for encode in (b64encode, urlsafe_b64encode))
    core = plain if plain == url else b"(?:%s|%s)" % (plain, url)
    return (_DIGIT if before else b"") + core + (_DIGIT + b"?={0,2}" if (before + len(piece)) % 3 else b"")


def _letter(letter: str) -> bytes:
    """One letter, however many times it was quoted."""
    if letter.isascii() and letter.isalnum():
        return letter.encode()
    raw = letter.encode()
    units = letter.encode("utf-16-be")
    spelled = [
        re.escape(raw),
        b"".join(b"%%(?i:%02x)" % byte for byte in raw),
        b"".join(rb"\\+u(?i:%02x%02x)" % (units[at], units[at + 1]) for at in range(0, len(units), 2)),
        *([rb"\\*x(?i:%02x)" % ord(letter)] if ord(letter) < 256 else []),
        *([rb"\\+" + _SHORT[letter]] if letter in _SHORT else []),
        *([rb"\+"] if letter == " " else []),
    ]
    return rb"\\{0,9}(?:" + b"|".join(spelled) + b")"
