"""`hipq dev`: all that an application needs while somebody writes it, in one terminal."""

from __future__ import annotations

import os
from importlib.util import find_spec
from secrets import token_urlsafe
from typing import Final

from hipq import config
from hipq.cli.commands import command
from hipq.cli.complain import note
from hipq.cli.dashboard_serving import PORT, SECRET, TOKENS
from hipq.cli.inputs import number_option
from hipq.cli.listening import bound
from hipq.cli.target import AppCommand, Target, said
from hipq.observe import logs
from hipq.reload import changes, code_of
from hipq.supervisor import HIPQ, Supervisor, WorkerSlot

HOST: Final = "127.0.0.1"


@command("dev", "hipq dev shop:app", "hipq dev shop:app --port 8002", cls=AppCommand, db=False, json=False)
@number_option("--port", 1, 65_535, 8001, "Where callbacks are taken, on 127.0.0.1.")
@number_option("--dashboard-port", 1, 65_535, PORT, "Where the dashboard is, on 127.0.0.1.")
def dev(target: Target, port: int, dashboard_port: int) -> int:
    """Run a worker, callbacks and the dashboard in one terminal, restarted when code changes, until SIGINT.

    It runs `hipq worker --reload`, `hipq callbacks` and `hipq dashboard`; each line of output says which of them wrote
    it. The worker takes its options from hipq.toml. Callback URLs begin with the address here, unless another is
    configured. For production, start the three by themselves.
    """
    app = said(target.app)
    logs.configure("info", "text")
    worker = ["worker", app, "--processes", "1", "--log-success"]
    places = [WorkerSlot(worker, "worker   ")]
    if find_spec("uvicorn") is None:
        note("callbacks are not taken: pip install 'hipq[callbacks]'")
    else:
        bound(HOST, port).close()  # if another program is there, this ends now
        os.environ["HIPQ_CALLBACK_URL"] = config.callback_url(None) or f"http://{HOST}:{port}"
        places.append(WorkerSlot(["callbacks", app, "--host", HOST, "--port", str(port)], "callbacks"))
    if find_spec("uvicorn") is None or find_spec("jinja2") is None:
        note("there is no dashboard: pip install 'hipq[dashboard]'")
    else:
        bound(HOST, dashboard_port).close()
        note(f"dashboard: {_dashboard_url(dashboard_port)}")
        places.append(WorkerSlot(["dashboard", app, "--port", str(dashboard_port)], "dashboard"))
    os.environ["PYTHONUNBUFFERED"] = "1"  # what handlers print is seen at once
    with changes(code_of(app)) as changed:
        return Supervisor(HIPQ, places, check=WorkerSlot([*worker, "--only-check"], "code     "), changes=changed).run()


def _dashboard_url(port: int) -> str:
    """A URL that logs in. Token and key are those of this run, so a session goes on when the code has changed."""
    where = f"http://{HOST}:{port}"
    os.environ.setdefault(SECRET, token_urlsafe())
    if os.environ.get(TOKENS):
        return f"{where}/"
    token = token_urlsafe(24)
    os.environ[TOKENS] = f"dev=admin:{token}"
    return f"{where}/login?token={token}"
