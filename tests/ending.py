"""What is to be ended when all tests of a process are over. pytest-xdist's workers leave without asking `atexit`."""

from __future__ import annotations

import atexit
from contextlib import ExitStack

_ends = ExitStack()
at_the_end = _ends.callback
"""The last one comes first."""
end_all = _ends.close

atexit.register(end_all)
