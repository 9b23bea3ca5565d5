"""A password never appears: not in an error, a log, `hipq doctor` or the line that says which database was opened."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from hipq import Hipq, HipqError
from hipq.move.moving import move
from hipq.observe import logs
from tests.cli.conftest import HipqCommand
from tests.servers import OwnPostgres

CANARY = "kanari/en@vogel%x"
PARTS = ("kanari", "en@vogel", "vogel")
"""None of these is anywhere else."""
CODED = quote(CANARY, safe="")

Nowhere = "127.0.0.1:1/shop"
GOOD: dict[str, Any] = {
    "a URL": f"postgresql://ann:{CODED}@{Nowhere}",
    "the query of a URL": f"postgresql://{Nowhere}?user=ann&password={CODED}",
    "words": f"host=127.0.0.1 port=1 dbname=shop user=ann password='{CANARY}'",
    "words without quotes": f"host=127.0.0.1 port=1 password={CANARY} dbname=shop user=ann",
    "JSON": json.dumps(
        {"driver": "postgresql", "host": "127.0.0.1", "port": 1, "database": "shop", "user": "ann", "password": CANARY}
    ),
}
BAD: dict[str, Any] = {
    "a URL that is not encoded": f"postgresql://ann:{CANARY}@{Nowhere}",
    "a URL that is half encoded": f"postgresql://ann:{CANARY.replace('/', '%2F')}@{Nowhere}",
    "a password for a port": f"postgresql://ann:{CANARY.replace('@', '')}/shop",
    "no scheme": f"ann:{CANARY}@{Nowhere}",
    "another scheme": f"oracle://ann:{CODED}@{Nowhere}",
    "SQLAlchemy's scheme": f"postgresql+psycopg://ann:{CODED}@{Nowhere}",
    "words with a gap": f"host=127.0.0.1 password=a {CANARY} b",
    "words with an unknown one": f"host=127.0.0.1 pasword={CANARY}",
    "words with semicolons": f"host=127.0.0.1;password={CANARY};port=1",
    "a line of settings": f"DATABASE_URL=postgresql://ann:{CODED}@{Nowhere}",
    "a name that is encoded": f"postgresql://{Nowhere}?passw%6Frds={CODED}",
    "a slash for a colon": f"ann/{CANARY}@{Nowhere}",
    "words without an end": f"host=127.0.0.1 password='{CANARY}",
    "half of JSON": f'{{"driver": "postgresql", "password": "{CANARY}"',
    "JSON of something else": json.dumps({"driver": f"postgresql://ann:{CODED}@{Nowhere}", "password": CANARY}),
    "JSON with an unknown key": json.dumps({"driver": "postgresql", "passwort": CANARY}),
}


def check(*texts: str) -> None:
    for text in texts:
        for part in (*PARTS, CODED):
            assert part not in text, text


def told(error: BaseException) -> Iterator[str]:
    """All that one can be shown of an error, and of what it came from."""
    yield "".join(traceback.format_exception(error))
    seen: list[BaseException | None] = [error]
    while one := seen.pop():
        yield f"{one!s} {one!r} {one.args!r}"
        seen = [one.__cause__ or one.__context__]


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    check(caplog.text, *(f"{record.args!r} {record.__dict__!r}" for record in caplog.records))


@pytest.mark.parametrize("db", [*GOOD.values(), *BAD.values()], ids=[*GOOD, *BAD])
def test_the_library_does_not_tell_it(db: str) -> None:
    """Where nobody listens, and where it is no database at all."""
    mapping = json.loads(db) if db in (GOOD["JSON"], BAD["JSON with an unknown key"]) else {"url": db}
    for given in (db, mapping):
        try:
            app = Hipq("shop", given)
            logs.subscribe(app.events)
            check(repr(app), repr(app.queue("orders")), str(app))
            check(app.store.url)
            app.queue("mails").enqueue("work")
        except HipqError as error:
            check(*told(error))
        else:
            pytest.fail("there is no such database")


@pytest.mark.parametrize("db", [*GOOD.values(), *BAD.values()], ids=[*GOOD, *BAD])
def test_no_command_tells_it(hipq: HipqCommand, folder: Path, monkeypatch: pytest.MonkeyPatch, db: str) -> None:
    good = db in GOOD.values()
    ran = [hipq("doctor", "--json", "--db", db), hipq("queue", "list", f"--db={db}")]
    assert {one.status for one in ran} == {1 if good else 2}
    wrong = [
        ("doctor", db), ("job", "list", "shop:app", db), ("job", "list", db, "-q", "orders"), ("worker", db),
        ("queue", "list", "--dbb", db), ("enqueue", db, "orders", "quick"), ("migrate", db),
        ("queue", "list", "--limit", db),
    ]  # fmt: skip
    ran += [hipq(*words) for words in wrong]
    assert all(one.status == 2 for one in ran[2:])
    monkeypatch.setenv("HIPQ_DATABASE_URL", db)
    shown = hipq("config")
    assert shown.status == 0
    assert "$HIPQ_DATABASE_URL" in shown.out
    ran += [shown, hipq("config", "--json")]
    if not good:  # the others wait for a server
        ran += [
            hipq(*words) for words in (("queue", "list"), ("tenant", "list"), ("serve",), ("bench",), ("shop:app",))
        ]
        ran += [hipq("worker", "shop:app", "--until-empty")]
    monkeypatch.setenv("HIPQ_APP", db)
    ran += [hipq("job", "list")]
    monkeypatch.delenv("HIPQ_DATABASE_URL")
    monkeypatch.delenv("HIPQ_APP")
    (folder / "hipq.toml").write_text(f"database = {json.dumps(db)}\n")
    ran += [hipq("config"), hipq("config", "--json")]
    (folder / "hipq.toml").write_text(f"database = [{json.dumps(db)}]\n")
    ran += [hipq("config"), hipq("queue", "list")]
    for one in ran:
        check(one.out, one.err)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Where to find a server that lets anybody in, whatever their password."""
    with OwnPostgres() as server:
        yield urlsplit(server.url).netloc.partition("@")[2]


FORMS: dict[str, Callable[[str], str]] = {
    "a URL": lambda at: f"postgresql://postgres:{CODED}@{at}/postgres",
    "words": lambda at: f"host=127.0.0.1 port={at.partition(':')[2]} user=postgres password='{CANARY}' dbname=postgres",
    "JSON": lambda at: json.dumps(
        {"driver": "postgresql", "host": "127.0.0.1", "port": int(at.partition(":")[2]), "user": "postgres",
         "password": CANARY, "database": "postgres"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_works_does_not_tell_it_either(
    hipq: HipqCommand, folder: Path, server: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    db = FORMS[form](server)
    assert hipq("migrate", "--db", db).status == 0
    monkeypatch.setenv("HIPQ_DATABASE_URL", db)
    ran = [hipq("enqueue", "shop:app", "orders", "quick") for _ in range(3)]
    ran += [hipq("worker", "shop:app", "--until-empty", "--log-level", "debug", "--log-format", "json")]
    ran += [hipq("job", "list", "--limit", "1", "--db", db), hipq("job", "list", "--limit", "1", f"--db={db}")]
    assert all("there is more: hipq job list" in one.err for one in ran[-2:])
    ran += [hipq("doctor"), hipq("doctor", "shop:app", "--json"), hipq("queue", "list", "--db", db), hipq("config")]
    ran += [hipq("tenant", "list")]
    assert {one.status for one in ran} == {0}
    assert "database: postgresql://postgres:…@127.0.0.1" in ran[0].err
    with pytest.raises(HipqError) as raised:
        move(f"sqlite:///{folder}/none.db", db)
    check(*told(raised.value), *(one.out + one.err for one in ran))
