"""An application of hipq that Django's tasks run in."""

from __future__ import annotations

from hipq import Hipq

app = Hipq("lab", "sqlite:///instance.db")
