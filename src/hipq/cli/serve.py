"""`hipq serve`: a daemon. Jobs and handlers over HTTP, for many tenants."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from hipq.cli.commands import command, log_options
from hipq.cli.complain import note
from hipq.cli.configured import Configured
from hipq.cli.inputs import Duration, number_option
from hipq.cli.listening import address, bound
from hipq.cli.serve_settings import Reload, proxies, settings
from hipq.cli.target import daemon_database, daemon_db_option, shown
from hipq.errors import Invalid
from hipq.files import exposed
from hipq.observe import logs

_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY


@command(
    "serve",
    "hipq serve",
    "hipq serve --db postgresql://ann@localhost/hipq --port 8080 --concurrency 16",
    "hipq serve --host 0.0.0.0 --job-log jobs.jsonl",
    json=False,
    cls=Configured,
    context_settings={"auto_envvar_prefix": "HIPQ_SERVE"},
)
@daemon_db_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@number_option("--port", 0, 65_535, 8000, "0: any that is free.")
@click.option("--journal", default="daemon.journal", show_default=True, metavar="FOLDER",
              help="Where jobs are kept until the database has them. Each daemon has its own.")  # fmt: skip
@number_option("--journal-size", 1, 1 << 20, 1024, "What may wait there while the database is away.", "MB")
@number_option("--concurrency -c", 1, 1000, 8, "Batches of jobs that run at the same time.")
@number_option(
    "--retry-after", 1, _YEAR, 60, "When a job that failed is tried again; later pauses double.", metavar="SECONDS"
)
@number_option("--retry-most", 1, _YEAR, 3600, "The longest of these pauses.", "SECONDS")
@number_option("--give-up-after", 1, _YEAR, _DAY, "After which a job is not tried again.", "SECONDS")
@number_option("--run-timeout", 1, _YEAR, 3600, "How long a handler may take for one job.", "SECONDS")
@number_option("--keep", 1, 10 * _YEAR, 7 * _DAY, "How long jobs that have ended are kept.", "SECONDS")
@number_option("--body-size", 1, 4096, 32, "What the body of a request may have.", "MB")
@number_option("--body-timeout", 1, _DAY, 30, "How long a body may take to come.", "SECONDS")
@number_option("--head-timeout", 1, _DAY, 15, "How long the head of a request may take to come.", "SECONDS")
@number_option("--connections", 4, 1 << 20, 4096, "Connections at a time; a quarter of them from one address.")
@number_option("--memory", 16, 1 << 20, 512, "What a handler's context may use.", "MB")
@number_option("--context-tasks", 1, 1 << 30, 10_000, "Jobs after which a handler's context is replaced.")
@click.option("--environment", multiple=True, metavar="NAME=FOLDER",
              help="Packages that handlers may name: a virtual environment, or one with node_modules.")  # fmt: skip
@click.option("--secrets-key-file", metavar="FILE",
              help="The keys that tenants' secrets are encrypted with; else $HIPQ_SECRETS_KEY has them.")  # fmt: skip
@click.option("--handler-network", is_flag=True, help="Let handlers use this machine's network.")
@click.option("--http-allow", multiple=True, metavar="HOST",
              help="A host that handlers may reach: a name, *.name, an address or a network, at its ports 80 and 443; "
              "at another one, or at all, with :8443 or :* behind it. Without any: every public address.")  # fmt: skip
@click.option("--trust-handlers", is_flag=True, help="Run handlers without a sandbox: they can do whatever you can.")
@click.option("--no-tokens", is_flag=True, help="Whoever can connect may do everything. Only on a loopback address.")
@click.option("--trusted-proxy", multiple=True, metavar="ADDRESS",
              help="An address or a network of proxies in front: who connects is then who they say, in X-Forwarded-For "
              "and X-Forwarded-Proto. Without any: nobody is believed.")  # fmt: skip
@click.option("--job-log", metavar="FILE", help="Write a line of JSON for each job that enters, runs and completes.")
@click.option("--drain", type=Duration("drain"), show_default="until handlers end",
              help="Seconds a stop may take: then jobs that still run are given back.")  # fmt: skip
@click.option("--shutdown-delay", type=Duration("shutdown-delay"), default=0.0, show_default=True,
              help="Seconds a stop begins with, in which /ready says no and requests are still taken: balancers have "
              "to notice.")  # fmt: skip
@log_options("one line for everything that happens to a job.")
def serve(**given: Any) -> None:
    """Run the daemon: take jobs and handlers over HTTP and run them, until SIGINT or SIGTERM. The first lets running
    handlers finish, a second gives their jobs back.

    Tenants and their tokens are made with `hipq tenant`. Several daemons may share one PostgreSQL database. It speaks
    plain HTTP: put what speaks HTTPS in front of it.

    Every option is in [serve] of hipq.toml, too, and in the environment: --job-log is job_log there, and
    $HIPQ_SERVE_JOB_LOG. SIGHUP reads the file again. `hipq config serve ...` says what is in force, and why.
    """
    _check_installed()
    from hipq.daemon.daemon import Daemon
    from hipq.daemon.handlers.keys import VARIABLE, no_core
    from hipq.daemon.http.serving import Serving
    from hipq.dashboard.session import Sessions

    Sessions.of_environment()  # a key that is too short is refused now, and not when somebody first looks
    given["db"] = daemon_database(given["db"])
    wanted = settings(given)
    trusted = proxies(given["trusted_proxy"])
    listening = bound(given["host"], given["port"])
    logs.configure(given["log_level"], given["log_format"])
    _say("starting", f"database: {shown(given['db'])}", database=shown(given["db"]))
    if given["secrets_key_file"] or os.environ.get(VARIABLE):
        no_core()
    if given["secrets_key_file"] and (mode := exposed(given["secrets_key_file"])):
        note(f"the key file {given['secrets_key_file']} lets others in ({mode}): chmod 600")
    served = Daemon(wanted.options)
    logs.subscribe(served.app.events)
    serving = Serving(served, listening, wanted.limits, tokens=not given["no_tokens"], proxies=trusted)

    def ready() -> None:
        _say("listening", f"listening on {address(listening)}", address=address(listening))

    serving.run(ready, Reload(click.get_current_context(), given, served, serving))


def _say(event: str, text: str, **fields: str) -> None:
    """A line for people; where logs are JSON, one of these: who reads them reads no other lines."""
    if click.get_current_context().params["log_format"] == "json":
        logs.LOGGER.info(logs.LogLine(event, fields))
    else:
        note(text)


def _check_installed() -> None:
    try:
        from hipq.daemon.http import serving  # noqa: F401 - only this command needs what this imports
    except ModuleNotFoundError as error:
        raise Invalid(f"hipq serve needs {error.name}: pip install 'hipq[daemon]'") from None
