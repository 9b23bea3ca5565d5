"""`hipq serve`: a daemon. Jobs and handlers over HTTP, for many tenants."""

from __future__ import annotations

from typing import Final

import click

from hipq.cli.commands import command, log_options
from hipq.cli.complain import note
from hipq.cli.inputs import number_option
from hipq.cli.listening import LOOPBACK, announce_address, bound
from hipq.cli.target import daemon_database, daemon_db_option, shown
from hipq.errors import Invalid
from hipq.observe import logs

_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY


@command(
    "serve",
    "hipq serve",
    "hipq serve --db postgresql://ann@localhost/hipq --port 8080 --concurrency 16",
    "hipq serve --host 0.0.0.0 --job-log jobs.jsonl",
    json=False,
)
@daemon_db_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@number_option("--port", 0, 65_535, 8000, "0: any that is free.")
@click.option("--journal", "folder", default="daemon.journal", show_default=True, metavar="FOLDER",
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
@click.option("--handler-network", is_flag=True, help="Let handlers use this machine's network.")
@click.option("--http-allow", multiple=True, metavar="HOST",
              help="A host that http handlers may reach: a name, *.name, an address or a network. Without any: every "
              "public address.")  # fmt: skip
@click.option("--trust-handlers", is_flag=True, help="Run handlers without a sandbox: they can do whatever you can.")
@click.option("--no-tokens", is_flag=True, help="Whoever can connect may do everything. Only on a loopback address.")
@click.option("--job-log", metavar="FILE", help="Write a line of JSON for each job that enters, runs and completes.")
@log_options("one line for everything that happens to a job.")
def serve(
    db: str | None, host: str, port: int, folder: str, journal_size: int, concurrency: int, retry_after: int,
    retry_most: int, give_up_after: int, run_timeout: int, keep: int, body_size: int, body_timeout: int,
    head_timeout: int, connections: int, memory: int, context_tasks: int, handler_network: bool,
    http_allow: tuple[str, ...], trust_handlers: bool, no_tokens: bool, job_log: str | None, log_level: str,
    log_format: str,
) -> None:  # fmt: skip
    """Take jobs and handlers over HTTP and run them, until SIGINT or SIGTERM; a second one gives back what runs.

    Tenants and their tokens are made with `hipq tenant`. Several daemons may share one PostgreSQL database. It speaks
    plain HTTP: put what speaks HTTPS in front of it.
    """
    _check_installed()
    from hipq.daemon.daemon import Daemon, Options
    from hipq.daemon.http.request import Limits
    from hipq.daemon.http.serving import Serving
    from hipq.sandbox import ContextSettings

    if no_tokens:
        _check_open(host, handler_network)
    url = daemon_database(db)
    contexts = ContextSettings(
        trust=trust_handlers, memory=memory << 20, network=handler_network, http_allow=http_allow or ("public",),
        most_tasks=context_tasks, most_contexts=max(32, 2 * concurrency),
    )  # fmt: skip
    options = Options(
        db=url, journal=folder, journal_bytes=journal_size << 20, concurrency=concurrency, retry_after=retry_after,
        retry_most=retry_most, give_up_after=give_up_after, run_timeout=run_timeout, keep=keep, job_log=job_log or "",
        contexts=contexts,
    )  # fmt: skip
    limits = Limits(
        body=body_size << 20, body_seconds=body_timeout, head_seconds=head_timeout,
        connections=_allowed(connections),
    )  # fmt: skip
    listening = bound(host, port)
    logs.configure(log_level, log_format)
    note(f"database: {shown(url)}")
    served = Daemon(options)
    logs.subscribe(served.app.events)
    Serving(served, listening, limits, tokens=not no_tokens).run(lambda: announce_address(listening))


def _check_open(host: str, handler_network: bool) -> None:
    """Whoever can connect may do everything: Invalid if that is more than this machine's users."""
    if host not in LOOPBACK:
        raise Invalid(f"--no-tokens lets everybody do everything, so it needs a loopback address, not {host!r:.80}")
    if handler_network:
        raise Invalid(
            "--no-tokens with --handler-network lets every handler do everything at this daemon, as it reaches the "
            "loopback address: leave out one of them"
        )


def _allowed(connections: int) -> int:
    """As many of these as the process may have descriptors for."""
    from hipq.daemon.http.connections import raise_descriptors

    allowed = raise_descriptors(connections)
    if allowed < connections:
        note(f"this process may have so few descriptors that {allowed} connections are allowed, not {connections}: "
             "raise `ulimit -n`")  # fmt: skip
    return allowed


def _check_installed() -> None:
    try:
        import starlette  # noqa: F401 - only this command needs them
        import uvicorn  # noqa: F401

        from hipq.daemon import daemon  # noqa: F401
    except ModuleNotFoundError as error:
        raise Invalid(f"hipq serve needs {error.name}: pip install 'hipq[daemon]'") from None
