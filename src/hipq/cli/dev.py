"""`hipq dev`: all that an application needs while somebody writes it, in one terminal."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Final

from hipq import config
from hipq.cli.callbacks import bound
from hipq.cli.commands import command
from hipq.cli.complain import note
from hipq.cli.inputs import number_option
from hipq.cli.target import AppCommand, Target, said
from hipq.observe import logs
from hipq.reload import changes, code_of
from hipq.supervisor import HIPQ, Supervisor, WorkerSlot

HOST: Final = "127.0.0.1"


@command("dev", "hipq dev shop:app", "hipq dev shop:app --port 8002", cls=AppCommand, db=False, json=False)
@number_option("--port", 1, 65_535, 8001, "Where callbacks are taken, on 127.0.0.1.")
def dev(target: Target, port: int) -> int:
    """Run jobs, take answers and callbacks, and start again when code changes: until SIGINT.

    It is `hipq worker --reload`, which listens to streams too, beside `hipq callbacks`; every line of theirs says whose
    it is. hipq.toml says how the worker works. Unless something else says where callbacks reach you, jobs' callback
    URLs begin with the address here. For production, start these two by themselves.
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
    os.environ["PYTHONUNBUFFERED"] = "1"  # what handlers print is seen at once
    with changes(code_of(app)) as changed:
        return Supervisor(HIPQ, places, check=WorkerSlot([*worker, "--only-check"], "code     "), changes=changed).run()
