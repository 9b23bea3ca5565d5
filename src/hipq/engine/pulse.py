"""How often an engine shows signs of life, and how often it looks for some."""

from __future__ import annotations

from typing import Final

LEASE: Final = 10.0
"""Seconds an engine may be silent before its jobs are taken from it. A third of it: renewals, looks for orphans."""
POLL: Final = 1.0
"""Seconds between looks when nothing wakes the engine: the safety net."""
LINGER: Final = 20_000
"""Microseconds until a look after something happened: catches what was added while its wake-up call was held back, and
learns of jobs that are due before the next poll."""
