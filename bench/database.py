"""A PostgreSQL and a MariaDB as people run them: on a disk, synced, and swept. The tests' own have none of that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from tests import mariadb_server, servers
from tests.ending import at_the_end


@contextmanager
def fresh_database() -> Iterator[str]:
    """The URL of an empty database: of the server that HIPQ_TEST_POSTGRES_URL names, else of one of this process."""
    _server_url()
    with servers.fresh_database() as url:
        yield url


@contextmanager
def fresh_mariadb() -> Iterator[str]:
    """The same of MariaDB, and of HIPQ_TEST_MARIADB_URL."""
    _mariadb_url()
    with mariadb_server.fresh_maria() as url:
        yield url


@cache
def _server_url() -> str:
    return _named_or_started(
        "HIPQ_TEST_POSTGRES_URL",
        lambda: servers.OwnPostgres(binaries=servers.installed_binaries(), max_connections="200"),
    )


@cache
def _mariadb_url() -> str:
    return _named_or_started(
        "HIPQ_TEST_MARIADB_URL",
        lambda: mariadb_server.OwnMariaDB(innodb_buffer_pool_size="1G", innodb_log_file_size="512M"),
    )


def _named_or_started(variable: str, make: Callable[[], servers.OwnPostgres | mariadb_server.OwnMariaDB]) -> str:
    if url := os.environ.get(variable):
        return url
    server = make()
    server.start()
    at_the_end(server.close)
    os.environ[variable] = server.url  # where all that makes a database looks first
    return server.url
