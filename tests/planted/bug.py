"""What a planted bug is."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    by: str
    """What must catch it: the beginning of the message, as a regular expression."""
    edits: tuple[tuple[str, str, str], ...]
    """File, text that is there exactly once, text that takes its place."""
    test: str = ""
    """The test that must fail with it, where the simulation has nothing of the kind: real processes and files."""
