"""A PostgreSQL as people run it: on a disk, synced, and swept by autovacuum. The tests' own has none of that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from tests import servers
from tests.ending import at_the_end


@contextmanager
def fresh_database() -> Iterator[str]:
    """The URL of an empty database: of the server that HIPQ_TEST_POSTGRES_URL names, else of one of this process."""
    _server_url()
    with servers.fresh_database() as url:
        yield url


@cache
def _server_url() -> str:
    if url := os.environ.get("HIPQ_TEST_POSTGRES_URL"):
        return url
    server = servers.OwnPostgres(binaries=servers.installed_binaries(), max_connections="200")
    server.start()
    at_the_end(server.close)
    os.environ["HIPQ_TEST_POSTGRES_URL"] = server.url  # where all that makes a database looks first
    return server.url
