"""The others, each in a virtual environment of its own, driven line by line (`bench.peers.driver`).

A peer that does not install, hangs or breaks is named with its reason, never left out in silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".bench"
"""Where the virtual environments are: made once, kept from run to run."""
POSTGRES, SQLITE, REDIS, MARIADB = "PostgreSQL", "SQLite", "Redis", "MariaDB"


class PeerFailed(Exception):
    """Why a peer cannot be measured, in a line."""


class Listed(NamedTuple):
    name: str
    store: str
    driver: str
    """The file that drives it, without .py."""
    environment: str
    """The folder under `.bench/` it is installed in."""
    requires: tuple[str, ...]
    durability: str
    """What of an acknowledged job survives what."""
    size: int
    """Jobs a drain of the full run has: about a second of work."""
    bulk: int = 0
    """Jobs it adds in one call, about a second of work; 0: it has no such call."""
    python: str = ""
    """The Python it needs, such as 3.12; empty: the one that runs the bench."""


DURABLE = "commit, fsync"
"""An acknowledged job survives a crash and a power loss."""
_NORMAL = "NORMAL: commit, not power loss"
_MEMORY = "no: Redis without AOF"
_PSYCOPG, _UVLOOP, _REDIS = "psycopg[binary]>=3.3", "uvloop>=0.23", "redis[hiredis]"
_HUEY = ("huey>=3.5", _REDIS)

PEERS: tuple[Listed, ...] = (
    Listed(
        "pgqueuer", POSTGRES, "drive_pgqueuer", "pgqueuer", ("pgqueuer[asyncpg]>=1.6", _UVLOOP), DURABLE, 15_000,
        bulk=50_000,
    ),
    Listed("oban", POSTGRES, "drive_oban", "oban", ("oban>=0.7", _PSYCOPG, _UVLOOP), DURABLE, 3_000, 3_000, "3.12"),
    Listed(
        "procrastinate", POSTGRES, "drive_procrastinate", "procrastinate",
        ("procrastinate>=3.10", _PSYCOPG, _UVLOOP), DURABLE, 800, bulk=10_000,
    ),
    Listed("awa", POSTGRES, "drive_awa", "awa", ("awa-pg>=0.6.9", _PSYCOPG, _UVLOOP), DURABLE, 5_000, bulk=30_000),
    Listed(
        "flexiq", POSTGRES, "drive_flexiq_postgres", "flexiq_postgres", ("flexiq>=2.1", _PSYCOPG), DURABLE, 900,
        bulk=25_000,
    ),
    Listed("huey", SQLITE, "drive_huey", "huey", _HUEY, "FULL; loses what runs at a crash", 4_000),
    Listed("flexiq", SQLITE, "drive_flexiq_sqlite", "flexiq", ("flexiq>=2.1",), _NORMAL, 1_000, bulk=50_000),
    Listed("honker", SQLITE, "drive_honker", "honker", ("honker>=0.2.5",), _NORMAL, 2_000, bulk=20_000),
    Listed(
        "honker, hand-written batches", SQLITE, "drive_honker_batch", "honker", ("honker>=0.2.5",), _NORMAL, 40_000,
        bulk=20_000,
    ),
    Listed("huey", REDIS, "drive_huey", "huey", _HUEY, f"{_MEMORY}; loses what runs at a crash", 3_500),
    Listed("dramatiq", REDIS, "drive_dramatiq", "dramatiq", ("dramatiq[redis]>=2.2", "hiredis"), _MEMORY, 4_000),
    Listed(
        "Celery", REDIS, "drive_celery", "celery", ("celery[redis]>=5.7", _REDIS),
        f"{_MEMORY}; acknowledged before it runs", 1_000,
    ),
    Listed(
        "taskiq", REDIS, "drive_taskiq", "taskiq", ("taskiq>=0.13", "taskiq-redis>=1.2", _REDIS, "uvloop"), _MEMORY,
        3_000,
    ),
    Listed("RQ", REDIS, "drive_rq", "rq", ("rq>=2.12", _REDIS), _MEMORY, 230, bulk=5_000),
)  # fmt: skip
