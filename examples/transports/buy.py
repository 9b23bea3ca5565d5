"""Orders of a shop, paid through the pretend bank: over the transports that the URLs name.

    python examples/transports/bank.py redis                       # in one terminal; it prints the next command
    python examples/transports/buy.py redis://127.0.0.1:6379       # in another

adds some orders of each kind (see `bank.py`), lets a worker ask the bank and keep its answers, prints what became of
each order, and ends by itself with a summary: every order paid or declined once, every answer accounted for; exit 1
if not.

With two URLs the request goes out on the first and its answer comes back on the second, whatever these are:

    python examples/transports/bank.py http kafka
    python examples/transports/buy.py http://127.0.0.1:8000 kafka://127.0.0.1:9092

The code that matters is in `redis_shop.py` and its like, one short file for each transport. The database,
`redis_shop.db`, is in the current folder, or where `--folder` says.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from hipq import Hipq, HipqError, JobFailed
from hipq.answers.reports import streams

CARDS = ("visa", "slow", "declined", "busy", "twice", "garbled")
SECONDS = 60.0


def choose(to: str, answers: str) -> str:
    """The shop's file for this way, with the servers in the environment, where it looks for them."""
    there, back = (url.partition("://")[0] for url in (to, answers))
    for scheme, url in ((there, to), (back, answers)):
        os.environ["BANK_URL" if scheme == "http" else f"HIPQ_{scheme.upper()}_URL"] = url
    for scheme in (there, back):
        if not Path(__file__).with_name(f"{scheme}_shop.py").exists():
            raise SystemExit(f"there is no shop for {scheme!r}; bank.py says what to name here")
    if there == back:
        return f"{there}_shop"
    if (there, back) == ("http", "kafka"):
        return "http_kafka_shop"
    os.environ["SHOP_ASKS"], os.environ["SHOP_IS_ANSWERED"] = there, back
    return "any_shop"


@contextmanager
def called_back(module: str) -> Iterator[None]:
    """`hipq callbacks http_shop:app`, beside the worker: it takes the answers that come by HTTP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ["HIPQ_CALLBACK_URL"] = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "hipq.cli.main", "callbacks", f"{module}:app", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            while "listening on" not in (line := process.stderr.readline()):
                if not line:
                    raise SystemExit("hipq callbacks did not start: pip install 'hipq[callbacks]'")
            yield
        finally:
            process.terminate()


def wait_for_listeners(app: Hipq) -> None:
    """Until this process listens. An MQTT server keeps nothing for who has never listened; others do, and it would not
    matter. What is wrong is said: a worker would go on trying."""
    me, until = f"{socket.gethostname()}:{os.getpid()}", time.monotonic() + SECONDS
    while time.monotonic() < until:
        mine = [stream.members[me] for stream in streams(app.store, app.name).values() if me in stream.members]
        if wrong := [one.error for one in mine if one.error]:
            raise SystemExit(wrong[0])
        if len(mine) == len(app.streams.listeners()):
            return
        time.sleep(0.05)
    raise SystemExit("nobody listens: see `hipq answers listeners`")


def buy(app: Hipq, charge: Any, orders: int) -> tuple[Counter[str], list[str]]:
    """So many orders with each card; how they ended, and their keys."""
    run, ended, ids = uuid.uuid4().hex[:6], Counter[str](), {}
    for number in range(orders):
        for card in CARDS:
            key = f"{run}-{card}-{number}"
            ids[key] = charge.enqueue({"amount": 5 + number, "card": card}, key=key)
    for key, job_id in ids.items():
        try:
            status = app.result(job_id, timeout=SECONDS)["status"]
        except JobFailed as failed:
            status = failed.job.fault.message if failed.job.fault else failed.job.code
        except TimeoutError:
            status = f"not answered: {app.why(job_id).sentence}"
        ended[status] += 1
        attempt = app.job(job_id).attempt
        print(f"{key}: {status}" + (f", asked {attempt} times" if attempt > 1 else ""))
    return ended, list(ids)


def unreadable_in(app: Hipq) -> int:
    return sum(count.answers for state, count in app.answers.counts("orders").items() if state == "unreadable")


def look_at_answers(app: Hipq, keys: list[str], before: int, wanted: Counter[str]) -> Counter[str]:
    """What became of the answers to these; the last may still be on their way."""
    until = time.monotonic() + 15
    while True:
        found = Counter[str](unreadable=unreadable_in(app) - before)
        for answer in (answer for key in keys for answer in app.answers.list("orders", key=key)):
            found[answer.state] += 1
            found["duplicate"] += answer.copies - 1
        if +found == wanted or time.monotonic() > until:
            return +found
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Orders, paid through a pretend bank.")
    parser.add_argument("to", help="the URL of the server by which the bank is asked")
    parser.add_argument("answers", nargs="?", help="the one by which it answers; the same, if nothing is said")
    parser.add_argument("--orders", type=int, default=3, help="so many with each card")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the database goes")
    options = parser.parse_args()
    os.chdir(options.folder)
    module = choose(options.to, options.answers or options.to)
    each, by_callback = options.orders, module == "http_shop"
    wanted = Counter(settled=len(CARDS) * each, applied=each, duplicate=each, unreadable=0 if by_callback else each)
    try:
        with called_back(module) if by_callback else nullcontext():
            shop = import_module(module)
            app: Hipq = shop.app
            before = unreadable_in(app)
            with app.working():
                wait_for_listeners(app)
                ended, keys = buy(app, shop.charge, each)
                answers = look_at_answers(app, keys, before, +wanted)
            app.close()
    except HipqError as error:
        raise SystemExit(str(error)) from None
    print("orders:", ", ".join(f"{count} {word}" for word, count in sorted(ended.items())))
    print("answers:", ", ".join(f"{count} {word}" for word, count in sorted(answers.items())))
    adds_up = ended == Counter(paid=(len(CARDS) - 1) * each, declined=each) and answers == +wanted
    print("it adds up" if adds_up else "it does not add up")
    return 0 if adds_up else 1


if __name__ == "__main__":
    sys.exit(main())
