"""`hipq callbacks`: take the answers that are brought to callback URLs, and do nothing else."""

from __future__ import annotations

import socket

import click

from hipq import Hipq
from hipq.callback import RATE, SIZE
from hipq.cli.commands import command, lifeline_option, log_options
from hipq.cli.complain import note
from hipq.cli.inputs import number_option
from hipq.cli.listening import announce_address, bound, check_uvicorn, serve_until_told
from hipq.cli.target import AppCommand, Target, announced
from hipq.errors import Invalid
from hipq.job.payload import SIZE_LIMIT
from hipq.observe import logs


@command(
    "callbacks",
    "hipq callbacks shop:app",
    "hipq callbacks shop:app --host 0.0.0.0 --port 8080",
    "HIPQ_CALLBACK_URL=https://shop.example/hipq hipq callbacks shop:app --log-level debug",
    cls=AppCommand,
    db=False,
    json=False,
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@number_option("--port", 0, 65_535, 8001, "0: any that is free.")
@number_option("--size", 1, SIZE_LIMIT, SIZE, "Bytes an answer may have.")
@number_option("--rate", 0, 1_000_000, RATE, "Calls in a second from one address; 0: any number.")
@log_options("one line for every callback.")
@lifeline_option
def serve_callbacks(
    target: Target, host: str, port: int, size: int, rate: int, log_level: str, log_format: str, lifeline: int | None
) -> None:
    """Receive answers at callback URLs and as webhooks, until SIGINT or SIGTERM. Several of these may run.

    It speaks plain HTTP: put what speaks HTTPS in front of it. Your own ASGI application can do the same, with
    `hipq.callbacks(app)` mounted in it.
    """
    from hipq.callback.asgi import callbacks  # it loads asyncio, which no other command needs to wait for

    check_uvicorn("hipq callbacks", "callbacks")
    app = announced(target.program) if lifeline is None else target.program  # supervised, it has been said
    app.signer.keys()  # a database that cannot be opened is said now, in one sentence
    listening = bound(host, port)
    logs.configure(log_level, log_format)
    logs.subscribe(app.events)
    serve_until_told(callbacks(app, size=size, rate=rate), listening, lambda: _announce(app, listening), lifeline)


def _announce(app: Hipq, listening: socket.socket) -> None:
    announce_address(listening)
    if app.callback_url:
        note(f"callback URLs begin with {app.callback_url}")
    else:
        note(
            "nothing says where this is reached from outside, so jobs have no callback URLs: "
            "set Hipq(..., callback_url=), $HIPQ_CALLBACK_URL, or callback_url in hipq.toml"
        )
    for webhook in app.streams.webhooks.values():
        try:
            webhook.secrets.check()
        except Invalid as error:  # the others, and callbacks, are taken all the same
            note(f"webhooks for {webhook.to} are refused with 503: {error}")
            continue
        note(f"webhooks for {webhook.to}: {(app.callback_url or '').rstrip('/')}/{webhook.name}")
