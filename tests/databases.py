"""An empty database on each of the stores, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.mariadb_server import clean_maria, fresh_maria
from tests.servers import clean_database, fresh_database

STORES: Final = ("sqlite", "postgres", "mariadb")


@contextmanager
def fresh(store: str, file: Path) -> Iterator[str]:
    """Its URL. `file`: where it is, if it is a file."""
    if store == "sqlite":
        yield f"sqlite:///{file}"
    else:
        with fresh_database() if store == "postgres" else fresh_maria() as url:
            yield url


@contextmanager
def clean(store: str, file: Path) -> Iterator[str]:
    """The same, but that a server's is one for all tests of a process."""
    if store == "sqlite":
        yield f"sqlite:///{file}"
    else:
        with clean_database() if store == "postgres" else clean_maria() as url:
            yield url
