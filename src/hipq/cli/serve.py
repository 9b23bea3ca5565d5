"""`hipq serve`: a daemon. Jobs and handlers over HTTP, for many tenants."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, Final

import click

from hipq.cli.callbacks import BACKLOG, announce_address, bound
from hipq.cli.commands import command, log_options
from hipq.cli.complain import note
from hipq.cli.inputs import number_option
from hipq.cli.target import daemon_database, daemon_db_option, shown
from hipq.errors import HipqError, Invalid
from hipq.observe import logs
from hipq.signals import each_meant

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon, Options
    from hipq.daemon.http.request import Limits

STOP_SECONDS: Final = 10
"""How long requests under way may take when it is to stop."""
WATCH_SECONDS: Final = 0.5
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY

_log = logging.getLogger("hipq")


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
    daemon = _daemon_module()
    if no_tokens and host not in LOOPBACK:
        raise Invalid(f"--no-tokens lets everybody do everything, so it needs a loopback address, not {host!r:.80}")
    if no_tokens and handler_network:
        raise Invalid(
            "--no-tokens with --handler-network lets every handler do everything at this daemon, as it reaches the "
            "loopback address: leave out one of them"
        )
    url = daemon_database(db)
    from hipq.sandbox import ContextSettings

    contexts = ContextSettings(
        trust=trust_handlers, memory=memory << 20, network=handler_network, http_allow=http_allow or ("public",),
        most_tasks=context_tasks, most_contexts=max(32, 2 * concurrency),
    )  # fmt: skip
    options = daemon.Options(
        db=url, journal=folder, journal_bytes=journal_size << 20, concurrency=concurrency, retry_after=retry_after,
        retry_most=retry_most,
        give_up_after=give_up_after, run_timeout=run_timeout, keep=keep, job_log=job_log or "", contexts=contexts,
    )  # fmt: skip
    from hipq.daemon.http.connections import raise_descriptors
    from hipq.daemon.http.request import Limits

    limits = Limits(
        body=body_size << 20, body_seconds=body_timeout, head_seconds=head_timeout,
        connections=raise_descriptors(connections),
    )  # fmt: skip
    if limits.connections < connections:
        note(f"this process may have so few descriptors that {limits.connections} connections are allowed, not "
             f"{connections}: raise `ulimit -n`")  # fmt: skip
    listening = bound(host, port)
    logs.configure(log_level, log_format)
    logging.getLogger("uvicorn").handlers[:] = logs.LOGGER.handlers
    note(f"database: {shown(url)}")
    run(daemon.Daemon, options, listening, limits, tokens=not no_tokens)


def run(make: Any, options: Options, listening: socket.socket, limits: Limits, *, tokens: bool) -> None:
    """Until it is told to stop, or cannot go on."""
    import uvicorn

    from hipq.daemon.http.api import app
    from hipq.daemon.http.connections import Connections
    from hipq.daemon.http.fast_protocol import AtOnceProtocol

    served: Daemon = make(options)
    logs.subscribe(served.app.events)
    api = app(served, tokens=tokens, limits=limits)
    protocol = AtOnceProtocol.within(limits.head_seconds, Connections(limits.connections))
    config = uvicorn.Config(
        api, access_log=False, log_config=None, log_level="warning", server_header=False, proxy_headers=False,
        ws="none", http=protocol, timeout_graceful_shutdown=STOP_SECONDS, timeout_keep_alive=75, backlog=BACKLOG,
    )  # fmt: skip
    server = uvicorn.Server(config)
    gc.freeze()  # what was loaded stays: to look through it again and again took a tenth of the time of small posts
    gc.set_threshold(20_000, 20, 20)
    told = 0

    def stop() -> None:
        nonlocal told
        told += 1
        if told == 1:
            api.stop()
            server.should_exit = True
            served.stop()
        else:
            served.stop_now()

    heard = each_meant(stop)

    async def watch() -> None:
        """A journal that cannot be synced, an engine that ended: nothing more may be acknowledged."""
        while not server.should_exit:
            await asyncio.sleep(WATCH_SECONDS)
            if served.health() == "broken":
                stop()

    async def serving() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, heard)
        watching = asyncio.ensure_future(watch())
        await server._serve([listening])
        watching.cancel()

    signal.signal(signal.SIGHUP, _heard_hangup)
    served.start()
    announce_address(listening)
    try:
        asyncio.run(serving()) if os.environ.get("HIPQ_NO_UVLOOP") else _run_fast(serving())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # the loop heard them until now; what runs may take an hour
            signal.signal(number, heard)
        served.stop()
        served.close()
    if served.failed or served.journal.broken:
        raise HipqError(str(served.failed or served.journal.broken))


def _heard_hangup(_number: int, _frame: Any) -> None:
    """A terminal that closes must not end a daemon that accepts jobs; and there is no configuration to read again."""
    _log.info("SIGHUP: there is nothing to read again, and the daemon goes on")


def _run_fast(main: Any) -> None:
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def _daemon_module() -> Any:
    try:
        import starlette  # noqa: F401 - only this command needs them
        import uvicorn  # noqa: F401

        from hipq.daemon import daemon
    except ModuleNotFoundError as error:
        raise Invalid(f"hipq serve needs {error.name}: pip install 'hipq[daemon]'") from None
    return daemon
