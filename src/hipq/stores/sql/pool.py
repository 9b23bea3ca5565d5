"""How long programs wait for a server."""

from __future__ import annotations

from typing import Final

ANSWER_SECONDS: Final = 15.0
"""Seconds that a server may leave a statement without any answer. Then the connection is cut: the process at the other
end is stopped, or a balancer in between hangs. Longer than any statement of hipq's waits for a lock."""
LONG_SECONDS: Final = 600.0
"""The same for statements that may have to read much: lists, counts, pruning."""
MIGRATION_SECONDS: Final = 24 * 3600.0
"""The same for statements that may have to write every row: migrations, and a move from another database."""
CALLER_SECONDS: Final = 10
"""Seconds that a program which adds a job, or brings an answer, waits for a transaction that has taken its key."""
POOL_SIZE: Final = 10
POOL_SECONDS: Final = 1.5
"""Seconds that a thread waits for a connection of the pool."""
