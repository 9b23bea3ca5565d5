"""`hipq dashboard`: pages that show a database in a browser, for whoever has the URL that it prints."""

from __future__ import annotations

import click

from hipq.cli.commands import command, lifeline_option
from hipq.cli.dashboard_serving import DashboardOptions, dashboard_options, serve
from hipq.cli.target import AppCommand, Target
from hipq.cli.waiter_target import WaiterTarget, configured
from hipq.errors import Invalid


@command(
    "dashboard",
    "hipq dashboard shop:app",
    "hipq dashboard --db postgresql://ann@localhost/shop --role view --mask card,cvv",
    "hipq dashboard shop:app --public-url https://ops.example/hipq",
    cls=AppCommand,
)
@dashboard_options
@click.option(
    "--waiter",
    "waiter_app",
    metavar="MODULE:APP",
    help="A Waiter whose messages it shows, too; else that of [waiter] in hipq.toml, if it has queues.",
)
@lifeline_option
def dashboard(target: Target, options: DashboardOptions, waiter_app: str | None, lifeline: int | None) -> None:
    """Serve pages that show an application or a database, and let you act on it, until SIGINT or SIGTERM.

    It prints a URL that logs in whoever has it. $HIPQ_DASHBOARD_TOKENS says who may log in instead, with which role:
    ann=admin:SECRET, bob=view:SECRET.
    """
    options.check()
    apps = target.apps
    if not apps:
        raise Invalid("there are no queues in this database yet")
    target_waiter = WaiterTarget(waiter_app or "", configured())
    serve(options, apps, target_waiter.waiter() if waiter_app or target_waiter.queues else None, lifeline)
