"""What a command works on: an application, or a database and whatever is registered in it."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

import click

from hipq import Hipq, Invalid, Job, NotFound, Queue, config
from hipq.cli.commands import Command
from hipq.cli.complain import ImportFailed, nearest, note, others
from hipq.cli.show import GIVEN
from hipq.cli.source import variables
from hipq.stores.open import open_store, url_of, without_password
from hipq.stores.protocols import Store

_APP = re.compile(r"(?P<module>[A-Za-z_]\w*(\.\w+)*):(?P<name>[A-Za-z_]\w*(\.\w+)*)")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.\w+)*")

T = TypeVar("T")


def usual_app() -> str:
    """The application of a command that names none; "" if nothing says which."""
    return os.environ.get("HIPQ_APP") or config.read().settings.app or ""


def usual_database() -> str:
    """The database of a command that has no application; "" if nothing says which."""
    found = os.environ.get("HIPQ_DATABASE_URL") or config.read().settings.database
    return url_of(found) if found else ""


def given_db(ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """The callback of every --db: its URL, in whatever form the database was given."""
    if value == "":  # a variable of a script that is not set: another database is not what was meant
        raise click.UsageError("--db is empty: give a URL, or leave it out", ctx)
    return value if value is None or ctx.resilient_parsing else url_of(value)


def daemon_database(db: str | None) -> str:
    """The database of a daemon: `hipq serve` and `hipq tenant` need no setting at all."""
    return db or usual_database() or "sqlite:///daemon.db"


daemon_db_option = click.option("--db", metavar="URL", callback=given_db, allow_from_autoenv=False, help="The "
                                "daemon's database; else $HIPQ_DATABASE_URL, or database of hipq.toml, or "
                                "daemon.db.")  # fmt: skip
_DB = click.Option(["--db"], metavar="URL", callback=given_db,
                   help="A database instead of MODULE:APP: all that is registered in it.")  # fmt: skip


class AppCommand(Command):
    """A command whose first argument is MODULE:APP, and that takes --db instead unless it needs the code (`db=False`).
    Both are handed to it as its `target`.

    Without either, $HIPQ_APP says which application, then `app` of hipq.toml. Nothing else that can stand first has a
    colon in it.
    """

    too_much = "an application is given as MODULE:APP, like shop:app"
    """What is said of a word too much, which may have been meant for MODULE:APP; "" = nothing but click's own words."""

    def __init__(self, name: str, *, params: Sequence[click.Parameter] = (), db: bool = True, **more: Any) -> None:
        first = click.Argument(["app"], metavar="[MODULE:APP]")
        super().__init__(name, params=[first, *params, *([_DB] if db else ())], **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[GIVEN] = list(args)
        self._refuse_db(ctx, args)
        if ctx.resilient_parsing and args and args[-1].startswith("-"):
            args = args[:-1]  # a shell completes its value, and without one MODULE:APP would be lost too
        found, first = probed(self, ctx, args)
        if ":" not in first:
            asks_nothing = ctx.resilient_parsing or set(args) & set(ctx.help_option_names)
            args = [self.usual(asks_nothing=bool(found.get("db") or asks_nothing)), *args]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" in error.message and first and ":" not in first and self.too_much:
                said = f"{without_password(first)!r:.60} is too much; {self.too_much}"
                raise click.UsageError(_meant(first) or said, ctx) from None
            raise

    def _refuse_db(self, ctx: click.Context, args: Sequence[str]) -> None:
        takes_db = any(one.name == "db" for one in self.params)
        if not takes_db and any(word.partition("=")[0] == "--db" for word in args):
            raise click.UsageError(
                "this needs the program, which has a database of its own: $HIPQ_DATABASE_URL names another", ctx
            )

    def usual(self, *, asks_nothing: bool) -> str:
        """What stands in for MODULE:APP."""
        return "" if asks_nothing else usual_app()

    def invoke(self, ctx: click.Context) -> Any:
        self.hand_over(ctx)
        return super().invoke(ctx)

    def hand_over(self, ctx: click.Context) -> None:
        """Give the command its `target`, instead of the parameters that say which."""
        ctx.params["target"] = Target(ctx.params.pop("app"), ctx.params.pop("db", None))


def probed(command: click.Command, ctx: click.Context, args: list[str]) -> tuple[dict[str, Any], str]:
    """The options a command line has, and the first of its words that is none."""
    options: list[click.Parameter] = [one for one in command.params if isinstance(one, click.Option)]
    probe = click.Command(command.name, params=[*options, click.Argument(["given"], nargs=-1, required=False)])
    found, _, _ = probe.make_parser(ctx).parse_args(list(args))
    given = found.get("given")
    return dict(found), given[0] if isinstance(given, (tuple, list)) and given else ""


def _meant(module: str) -> str:
    """What to write for a module without an application, if its source says that."""
    name = module.removesuffix(".py")
    with suppress(Exception):  # whatever the file is
        if _MODULE.fullmatch(name) and (found := variables(name, "Hipq")):
            return f"{module} is a module: write {' or '.join(f'{name}:{app}' for app in found[:3])}"
    return ""


def load(where: str) -> Hipq:
    """The application at MODULE:APP."""
    return load_any(said(where), Hipq)


def said(where: str) -> str:
    """A MODULE:APP that can be one, whatever is there."""
    if not where:
        raise click.UsageError("say which application: MODULE:APP first, in $HIPQ_APP, or as app in hipq.toml")
    _parts(where)
    return where


def _parts(where: str) -> re.Match[str]:
    if match := _APP.fullmatch(where):
        return match
    raise Invalid(
        f"an application is given as MODULE:APP, like shop:app, not {without_password(where)!r:.80}; "
        "a database is given with --db"
    )


def load_any(where: str, kind: type[T]) -> T:
    """What is at MODULE:APP, which must be of this kind. The current directory is importable, and that of the
    hipq.toml that names it."""
    match = _parts(where)
    configured = config.read()
    folders = [str(configured.file.parent)] if configured.file and configured.settings.app == where else []
    for folder in (*folders, os.getcwd()):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    found: Any = _imported(match["module"])
    for name in match["name"].split("."):
        if not hasattr(found, name):
            raise Invalid(f"module {match['module']} has no {match['name']}{nearest(name, _all_in(found, kind))}")
        found = getattr(found, name)
    if not isinstance(found, kind):
        raise Invalid(f"{where} is a {type(found).__name__}, not a {kind.__name__}")
    return found


def _all_in(module: Any, kind: type[Any]) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, kind)]


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise Invalid(f"there is no module {error.name} in {os.getcwd()} or among the installed ones") from None
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"  # that says its own
        raise ImportFailed(f"importing {module} raised {type(error).__name__}: {error}{where}") from error


def announced(app: Hipq) -> Hipq:
    """Say on standard error which database it is: the first thing to look at when a job is missing."""
    note(f"database: {shown(app.url)}")
    click.get_current_context().call_on_close(app.close)
    return app


def shown(url: str) -> str:
    """A database URL for people: paths in full, passwords not at all."""
    if url in ("sqlite://", "sqlite:///:memory:", ":memory:"):
        return "sqlite:// (in memory: gone when this command ends)"
    if url.startswith("sqlite:///"):
        return f"sqlite:///{os.path.abspath(url.removeprefix('sqlite:///'))}"
    return without_password(url)


def database(db: str | None) -> str:
    """The URL that --db gives, or what stands in for it."""
    found = db or usual_database()
    if not found:
        raise click.UsageError(
            "say which application, MODULE:APP first or in $HIPQ_APP, or which database, --db or $HIPQ_DATABASE_URL"
        )
    return found


def _registered(db: str) -> list[Hipq]:
    note(f"database: {shown(db)}")
    path = db.removeprefix("sqlite:///")
    if path != db and path != ":memory:" and not os.path.exists(path):  # opening it would make one
        raise Invalid(f"there is no database file {os.path.abspath(path)}; `hipq migrate --db {db}` makes one")
    store = open_store(db)
    tables = {(queue.app, queue.name): queue.table for queue in store.queues()}
    store.close()
    apps: dict[str, Hipq] = {}
    for app, queue in tables:
        if app not in apps:
            apps[app] = Hipq(app, db, table_naming=lambda app, queue: tables[app, queue])
            click.get_current_context().call_on_close(apps[app].close)
        apps[app].known(queue)
    return list(apps.values())


class Target:
    """What a command works on: an application, or a database and whatever is registered in it."""

    def __init__(self, app: str, db: str | None) -> None:
        if app and db:
            raise click.UsageError("give MODULE:APP or --db, not both")
        self.app, self.db = app, db

    @property
    def url(self) -> str:
        """The database of a command without an application."""
        return database(self.db)

    @cached_property
    def program(self) -> Hipq:
        """The application, with its code."""
        return load(self.app)

    @cached_property
    def apps(self) -> list[Hipq]:
        """The application, with those of its queues that only the database knows; or, by URL, all registered ones."""
        if not self.app:
            return _registered(self.url)
        app = announced(self.program)
        declared = {queue.name for queue in app.queues}
        for known in app.store.queues(app.name):
            if known.name not in declared:
                app.known(known.name)
        return [app]

    @property
    def store(self) -> Store:
        """The database, whatever is registered in it: what is in there only once is the same for all applications."""
        if self.apps:
            return self.apps[0].store
        found = open_store(self.url)
        click.get_current_context().call_on_close(found.close)
        return found

    def job(self, job_id: int) -> tuple[Hipq, Job[Any]]:
        for app in self.apps:
            with suppress(NotFound):
                return app, app.job(job_id)
        raise NotFound(f"there is no job {job_id} here")

    def queues(self, name: str | None) -> list[tuple[Hipq, Queue]]:
        """The queues of this name, of any instance; all of them, if it is None."""
        return self._queues(name, lambda _, queue: name in (None, queue.name))

    def queue(self, name: str) -> tuple[Hipq, Queue]:
        """The queue of this name; where a database has it of several instances, INSTANCE.QUEUE says which."""
        found = self._queues(name, lambda app, queue: name in (queue.name, f"{app.name}.{queue.name}"))
        if len(found) > 1:
            which = " or ".join(f"{app.name}.{queue.name}" for app, queue in found)
            raise Invalid(f"there are several queues {name}: say {which}")
        return found[0]

    def _queues(self, name: str | None, is_meant: Callable[[Hipq, Queue], bool]) -> list[tuple[Hipq, Queue]]:
        there = [(app, queue) for app in self.apps for queue in app.queues]
        found = [pair for pair in there if is_meant(*pair)]
        if name is not None and not found:
            raise Invalid(f"there is no queue {name!r:.60}{others(name, [queue.name for _, queue in there])}")
        return found

    def declared(self, wanted: Iterable[str]) -> list[str]:
        """The queues that the application declares; Invalid if one that is wanted is not among them."""
        there = [queue.name for queue in self.program.queues]
        for name in wanted:
            if name not in there:
                raise Invalid(f"{self.app} declares no queue {name!r:.60}{others(name, there)}")
        return there
