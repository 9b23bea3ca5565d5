"""From a URL, or a mapping of connection details, to a store. Only the chosen store is imported."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from hipq.errors import Invalid, Moved, StoreUnavailable, shown
from hipq.job import payload
from hipq.stores.clock import Clock
from hipq.stores.password import without_password
from hipq.stores.protocols import Store

__all__ = ["located", "open_guest", "open_store", "url_of", "without_password"]

_FORMS: Final = (
    "use sqlite:///file.db, sqlite:// (in memory), postgresql://user@host/database or mariadb://user@host/database"
)
_IN_MEMORY: Final = ("sqlite://", "sqlite:///:memory:", ":memory:")
_SCHEME: Final = re.compile(r"([A-Za-z][\w+.-]{0,30})://")
_POSTGRES: Final = re.compile(r"postgres(?:ql)?://(?P<authority>[^/?]*)(?P<path>[^?]*)\??(?P<query>.*)", re.DOTALL)
MARIADB: Final = ("mariadb://", "mysql://")
"""How URLs of MariaDB and MySQL begin."""
_FREE: Final = ("password", "sslpassword", "options")
"""Keys of libpq whose values may be anything."""
_HOST: Final = r"(?:\[[^\]]*\]|[^:@\[\],]*)(?::[0-9]*)?"


# No message here shows what was given, but for names and keys: a password may be anywhere in it.


def url_of(db: str | Mapping[str, Any]) -> str:
    """The URL of a database, however it was given; Invalid, if there is no such database.

    A mapping has `driver` and, for sqlite, `database` (or `file`), a path; for postgresql `database` and any key that
    libpq knows, such as host, port, user, password, sslmode; for mariadb these five, unix_socket and what begins with
    ssl_. Or it has a `url`. A string is a URL, such a mapping in
    JSON, or libpq's `key=value` words.
    """
    if isinstance(db, Mapping):
        return _of_mapping(db)
    if not isinstance(db, str):
        raise Invalid(f"db must be a URL or a mapping, not {type(db).__name__}; {_FORMS}")
    if db.lstrip().startswith("{"):
        return _of_mapping(payload.parse(db, "db"))
    if "\x00" in db or not db.isprintable():
        raise Invalid("a database URL must not contain control characters or broken Unicode")
    if db in _IN_MEMORY:
        return "sqlite://"
    if re.fullmatch(r"sqlite:///.+", db):
        if db.startswith("sqlite:///file:"):
            raise Invalid("db is a URI of SQLite's own, as Django gives its tests; hipq takes the path of a file")
        return db
    if match := _POSTGRES.fullmatch(db):
        _check_postgres(db, match)
        return db
    if db.startswith(MARIADB):
        from hipq.stores.mariadb.address import options_of

        options_of(db)
        return db
    if not _SCHEME.match(db) and re.match(r"\s*\w+\s*=", db):
        return _postgres_url(_words(db))
    raise _refusal(db)


def _of_mapping(db: Mapping[str, Any]) -> str:
    given = {name: value for name, value in db.items() if value is not None}
    if "url" in given:
        _known(given, ["url"])
        if not isinstance(given["url"], str):
            raise Invalid(f"db's url must be a string, not {type(given['url']).__name__}")
        return url_of(given["url"])
    driver = given.pop("driver", None)
    if not isinstance(driver, str):
        raise Invalid("db's driver must be sqlite, postgresql or mariadb")
    if driver in _DRIVERS:
        return url_of(_DRIVERS[driver](given))
    said = f", not {driver}" if re.fullmatch(r"[\w+-]{1,30}", driver) else ""
    raise Invalid(f"db's driver must be sqlite, postgresql or mariadb{said}")


def _of_sqlite(given: Mapping[str, Any]) -> str:
    _known(given, ["driver", "database", "file"])
    path = _text("database", given.get("database", given.get("file", "")))
    if len(given) != 1 or not path:
        raise Invalid('db must name one file: {"driver": "sqlite", "database": "shop.db"}, or ":memory:" for none')
    return "sqlite://" if path == ":memory:" else url_of(f"sqlite:///{path}")


def _of_postgres(given: Mapping[str, Any]) -> str:
    if {"database", "dbname"} <= given.keys():
        raise Invalid("db has database and dbname, which are the same: give one of them")
    _known(given, ["driver", "database", *_libpq_keys()])
    texts = {name: _text(name, value) for name, value in given.items()}
    if "database" in texts:
        texts["dbname"] = texts.pop("database")
    if match := re.fullmatch(r"\[(.*:.*)\]", texts.get("host", "")):  # as in a URL; libpq would ask for that name
        texts["host"] = match[1]
    if re.search("://|=", texts.get("dbname", "")):  # libpq would read it as a URL, or as words
        raise Invalid("db's database must be the name of a database: give a URL as db, or as its url")
    if not re.fullmatch(r"[0-9]*(,[0-9]*)*", texts.get("port", "")):
        raise Invalid("db's port must be a number")
    return _postgres_url({name: text for name, text in texts.items() if text})


def _of_maria(given: Mapping[str, Any]) -> str:
    from hipq.stores.mariadb.address import KEYS, url_from

    _known(given, ["driver", "host", "port", "user", "password", "database", *KEYS])
    texts = {name: _text(name, value) for name, value in given.items()}
    return url_of(url_from(texts))


_DRIVERS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "sqlite": _of_sqlite, "postgresql": _of_postgres, "postgres": _of_postgres, "mariadb": _of_maria,
    "mysql": _of_maria,
}  # fmt: skip


def _text(name: str, value: Any) -> str:
    if not isinstance(value, (str, int)):
        raise Invalid(f"db's {name} must be a string or a whole number, not {type(value).__name__}")
    return str(int(value)) if isinstance(value, bool) else str(value)


def _known(given: Iterable[Any], keys: list[str]) -> None:
    for name in given:
        if name not in keys:
            from difflib import get_close_matches  # programs that make no mistakes need not load it

            word = name if isinstance(name, str) and re.fullmatch(r"\w{1,40}", name) else "a key that is no word"
            near = get_close_matches(word, keys, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise Invalid(f"db has {word}, which is unknown; {hint}known are {', '.join(keys)}")


def _refusal(db: str) -> Invalid:
    """The message about a string that is no database. It does not show what may be a password."""
    if (match := _SCHEME.match(db)) and match[1] not in ("sqlite", "postgres", "postgresql", "mysql", "mariadb"):
        return Invalid(f"hipq keeps no jobs in {match[1]} databases: {_FORMS}")
    if re.fullmatch(r"[\w./-]+\.(?:db|sqlite3?)", db):
        return Invalid(f"{db} is not a database URL: write sqlite:///{db}")
    if "@" in db and not match:
        return Invalid("a database URL begins with its kind: write postgresql://user:password@host/database")
    return Invalid(f"this is not a database URL: {_FORMS}")


# -- PostgreSQL ------------------------------------------------------------------------------------------------------
@contextmanager
def _psycopg() -> Iterator[None]:
    """A context around the import of a driver, or of what needs it: says which extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("psycopg"):
            raise Invalid("PostgreSQL needs psycopg: pip install 'hipq[postgres]'") from None
        raise


def _read(db: str) -> dict[str, str]:
    """The keys that libpq reads from a string. Its messages about mistakes are not shown, because they quote what they
    do not understand."""
    with _psycopg():
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    try:
        return {name: str(value) for name, value in conninfo_to_dict(db).items()}
    except psycopg.ProgrammingError:
        pass  # to raise here would keep its error as the context of ours
    raise Invalid(
        "this is not a PostgreSQL URL: write postgresql://user:password@host:5432/database, with % and whatever else "
        "means something in a URL percent-encoded; or a mapping"
    )


def _words(db: str) -> dict[str, str]:
    """Check libpq's `key=value` words. With semicolons between them, the first value would contain all the others, and
    a password among them would be shown as a part of a host."""
    found = _read(db)
    if any(re.search(r";\s*\w+\s*=", text) for name, text in found.items() if name not in _FREE):
        raise Invalid("key=value words of a PostgreSQL database have spaces between them, not semicolons")
    return found


def _libpq_keys() -> list[str]:
    _read("")  # which says what is missing, if psycopg is
    from psycopg.pq import Conninfo

    return sorted(option.keyword.decode() for option in Conninfo.get_defaults())


def _check_postgres(url: str, parts: re.Match[str]) -> None:
    """Refuse a URL that libpq would read otherwise than its author meant: it would show a part of the password as a
    host."""
    who, _, hosts = parts["authority"].rpartition("@")
    if "@" in who + parts["path"] + parts["query"]:
        raise Invalid(
            "a user or a password with @ / ? or % in it is percent-encoded in a URL: write %40 for @, %2F for /"
        )
    if not re.fullmatch(f"{_HOST}(?:,{_HOST})*", hosts):
        raise Invalid(
            "the port in a PostgreSQL URL must be a number: write postgresql://user:password@host:5432/database"
        )
    if parts["query"]:
        _known([pair.partition("=")[0] for pair in parts["query"].split("&")], [*_libpq_keys(), "ssl"])
    _read(url)


def _postgres_url(given: Mapping[str, str]) -> str:
    """A URL with the meaning of these keys of libpq. Several hosts, a socket's folder, and whatever else has no place
    in a URL, are in its query."""
    from urllib.parse import quote, urlencode  # programs that give a URL need not load it

    rest = dict(given)
    user, password, database = (quote(rest.pop(name, ""), safe="") for name in ("user", "password", "dbname"))
    who = f"{user}{':' if password else ''}{password}{'@' if user or password else ''}"
    where, host, port = "", rest.get("host", ""), rest.get("port", "")
    if re.fullmatch(r"[\w.-]+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*", host, re.ASCII) and re.fullmatch("[0-9]*", port):
        where = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        rest = {name: text for name, text in rest.items() if name not in ("host", "port")}
    query = urlencode(rest, quote_via=quote)
    return f"postgresql://{who}{where}/{database}{'?' if query else ''}{query}"


def located(url: str) -> str:
    """The same database by a URL that does not depend on the current folder: a program may change that before it opens
    the database."""
    match = re.fullmatch(r"sqlite:///(?!:memory:)([^/].*)", url, re.DOTALL)
    return f"sqlite:///{os.path.abspath(match[1])}" if match else url


# -- opening it ------------------------------------------------------------------------------------------------------
def open_store(db: str | Mapping[str, Any], clock: Clock | None = None) -> Store:
    url = url_of(db)
    if url == "sqlite://":
        from hipq.stores.sqlite.store import SqliteStore

        return SqliteStore("", clock)
    if url.startswith("sqlite:///"):
        return _file(url.removeprefix("sqlite:///"), clock)
    if url.startswith(MARIADB):
        return _maria(url, clock)
    if not _POSTGRES.fullmatch(url):
        raise _refusal(url)
    with _psycopg():
        from hipq.stores.postgres.store import PostgresStore
    return PostgresStore(url, clock, listen_url=os.environ.get("HIPQ_LISTEN_URL", ""), answer_seconds=_answer_seconds())


def _maria(url: str, clock: Clock | None) -> Store:
    try:
        from hipq.stores.mariadb.store import MariaStore
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("pymysql"):
            raise Invalid("MariaDB and MySQL need PyMySQL: pip install 'hipq[mysql]'") from None
        raise
    return MariaStore(url, clock, answer_seconds=_answer_seconds())


def _answer_seconds() -> float:
    """How long a server may be silent before it counts as away."""
    given = os.environ.get("HIPQ_STORE_TIMEOUT", "15")
    if not re.fullmatch(r"\d{1,4}(\.\d+)?", given) or not 4 <= float(given) <= 3600:
        raise Invalid(f"HIPQ_STORE_TIMEOUT must be seconds from 4 to 3600, not {shown(given)}")
    return float(given)


def open_guest(
    kind: str, lend: Callable[[], Any], url: str, clock: Clock | None = None, *, for_a_test: bool = False
) -> Store:
    """A database through somebody else's connection. `lend` returns the one to use now, in this thread, and everything
    is part of its transaction. It can add jobs, look at them, and bring answers. `url` is what messages call it.
    `for_a_test`: nobody uses it after their transaction, so tables may be made in there, too."""
    if kind == "sqlite":
        from hipq.stores.sqlite.lent import GuestStore as SqliteGuest

        return SqliteGuest(lend, url, clock, for_a_test)
    if kind == "postgresql":
        from hipq.stores.postgres.lent import GuestStore as PostgresGuest

        return PostgresGuest(lend, url, clock, for_a_test)
    if kind in ("mysql", "mariadb"):
        from hipq.stores.mariadb.lent import GuestStore as MariaGuest

        return MariaGuest(lend, url, clock, for_a_test)
    raise Invalid(f"hipq has no tables in {kind} databases: use SQLite, PostgreSQL, MariaDB or MySQL")


def _file(path: str, clock: Clock | None) -> Store:
    """A SQLite file; or the database that its jobs have moved to, now or later."""
    from hipq.stores.relocated import LONGEST_MOVE, PAUSE, Destination, Following, followed
    from hipq.stores.sqlite.moving import is_moving
    from hipq.stores.sqlite.store import SqliteStore

    def there(url: str) -> Destination:
        return cast("Destination", open_store(url, clock))

    real, until = os.path.realpath(path), 0.0
    while True:
        try:
            return Following(SqliteStore(path, clock), there, lambda: is_moving(real)).as_store()
        except Moved as moved:
            return followed(f"sqlite:///{path}", moved, there)
        except StoreUnavailable:  # an old SQLite's lock file is held
            until = until or time.monotonic() + LONGEST_MOVE
            if not is_moving(real) or time.monotonic() >= until:
                raise
            time.sleep(PAUSE)
