"""What a command works on: an application, or a database and whatever is registered in it."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from hipq import Hipq, Invalid, Job, NotFound, Queue
from hipq.stores.open import open_store, without_password

_APP = re.compile(r"(?P<module>[A-Za-z_]\w*(\.\w+)*):(?P<name>[A-Za-z_]\w*(\.\w+)*)")


class AppCommand(click.Command):
    """A command whose first argument is MODULE:APP. Left out, it is $HIPQ_APP, unless --db names a database.

    Nothing else that can stand first has a colon in it.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options: list[click.Parameter] = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        probe = click.Command(self.name, params=[*options, click.Argument(["given"], nargs=-1, required=False)])
        found, _, _ = probe.make_parser(ctx).parse_args(list(args))
        given = found.get("given")
        first = given[0] if isinstance(given, (tuple, list)) and given else ""
        if ":" not in first:
            args = ["" if found.get("db") else os.environ.get("HIPQ_APP", ""), *args]
        return super().parse_args(ctx, args)


def app_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("app", metavar="[MODULE:APP]")(command)


db_option = click.option("--db", metavar="URL", help="A database instead of MODULE:APP: all that is registered in it.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def load(where: str) -> Hipq:
    """The application at MODULE:APP; the current directory is importable."""
    if not where:
        raise click.UsageError("say which application: MODULE:APP first, or in $HIPQ_APP")
    match = _APP.fullmatch(where)
    if not match:
        raise Invalid(f"an application is given as MODULE:APP, like shop:app, not {where!r:.80}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _imported(match["module"])
    for name in match["name"].split("."):
        if not hasattr(found, name):
            raise Invalid(f"module {match['module']} has no {match['name']}")
        found = getattr(found, name)
    if not isinstance(found, Hipq):
        raise Invalid(f"{where} is a {type(found).__name__}, not a Hipq")
    return found


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise Invalid(f"there is no module {error.name} in {os.getcwd()} or among the installed ones") from None
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise Invalid(
            f"importing {module} raised {type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
        ) from None


def announced(app: Hipq) -> Hipq:
    """Say on standard error which database it is: the first thing to look at when a job is missing."""
    click.echo(f"database: {shown(app.url)}", err=True)
    click.get_current_context().call_on_close(app.close)
    return app


def shown(url: str) -> str:
    """A database URL for people: paths in full, passwords not at all."""
    if url in ("sqlite://", "sqlite:///:memory:"):
        return "sqlite:// (in memory: gone when this command ends)"
    if url.startswith("sqlite:///"):
        return f"sqlite:///{os.path.abspath(url.removeprefix('sqlite:///'))}"
    return without_password(url)


def instances(where: str, db: str | None) -> list[Hipq]:
    """The application, with those of its queues that only the database knows; or, by URL, all registered ones."""
    if not db:
        if not where:
            raise click.UsageError("say which application, MODULE:APP first or in $HIPQ_APP, or which database, --db")
        app = announced(load(where))
        declared = {queue.name for queue in app.queues}
        for known in app.store.queues(app.name):
            if known.name not in declared:
                app.queue(known.name)
        return [app]
    if where:
        raise click.UsageError("give MODULE:APP or --db, not both")
    return _registered(db)


def _registered(db: str) -> list[Hipq]:
    click.echo(f"database: {shown(db)}", err=True)
    path = db.removeprefix("sqlite:///")
    if path != db and not os.path.exists(path):
        raise Invalid(f"there is no database file {os.path.abspath(path)}")  # opening it would make one
    store = open_store(db)
    tables = {(queue.app, queue.name): queue.table for queue in store.queues()}
    store.close()
    apps: dict[str, Hipq] = {}
    for app, queue in tables:
        if app not in apps:
            apps[app] = Hipq(app, db, table_naming=lambda app, queue: tables[app, queue])
            click.get_current_context().call_on_close(apps[app].close)
        apps[app].queue(queue)
    return list(apps.values())


def find(apps: list[Hipq], id: int) -> tuple[Hipq, Job[Any]]:
    for app in apps:
        with suppress(NotFound):
            return app, app.job(id)
    raise NotFound(f"there is no job {id} here")


def of_name(apps: list[Hipq], queue: str | None) -> list[tuple[Hipq, Queue]]:
    """The queues of this name, of any instance; all of them, if it is None."""
    all_of_them = [(app, each) for app in apps for each in app.queues]
    found = [(app, each) for app, each in all_of_them if queue in (None, each.name)]
    if queue is not None and not found:
        raise _no_queue(queue, all_of_them)
    return found


def chosen(where: str, db: str | None, name: str) -> tuple[Hipq, Queue]:
    """The queue of this name; where a database has it of several instances, INSTANCE.QUEUE says which."""
    all_of_them = of_name(instances(where, db), None)
    found = [(app, each) for app, each in all_of_them if name in (each.name, f"{app.name}.{each.name}")]
    if len(found) > 1:
        which = " or ".join(f"{app.name}.{each.name}" for app, each in found)
        raise Invalid(f"there are several queues {name}: say {which}")
    if not found:
        raise _no_queue(name, all_of_them)
    return found[0]


def _no_queue(name: str, all_of_them: list[tuple[Hipq, Queue]]) -> Invalid:
    there = ", ".join(each.name for _, each in all_of_them) or "none"
    return Invalid(f"there is no queue {name!r:.60}; there are {there}")
