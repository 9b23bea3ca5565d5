"""Whether an engine is to stop, and why."""

from __future__ import annotations


class Stop:
    def __init__(self) -> None:
        self.asked = 0
        """How many requests to stop there were. After one nothing is claimed and handlers may finish; after two the
        rest is given back."""
        self.unfit = ""
        """Why this process must be replaced, once it must."""

    def retire(self, why: str) -> None:
        """Stop because this process is of no use any more."""
        self.unfit = why
        self.asked = max(self.asked, 1)

    def at_once(self) -> None:
        self.asked = max(self.asked, 2)
