"""An AWS to try the waiter with: moto's server, in memory, with two queues. It runs until Ctrl-C.

    python examples/waiter/cloud.py

prints what to type next. It is no part of what an application would write.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec

import boto3

SECONDS = 60.0
QUEUES = {"mails": {}, "invoices.fifo": {"FifoQueue": "true"}}


def main() -> int:
    if find_spec("moto") is None or find_spec("flask_cors") is None:
        print("there is no such server here: pip install 'moto[server,sqs,dynamodb]'", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url, quiet = f"http://127.0.0.1:{port}", subprocess.DEVNULL
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet) as process:
        try:
            wait_for(url, process)
            make_queues(url)
            print(f"now, in another terminal: python examples/waiter/reminders.py {url}", flush=True)
            return process.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            process.terminate()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("moto's server did not start")


def make_queues(url: str) -> None:
    secret = {"aws_access_key_id": "pretended", "aws_secret_access_key": "pretended"}
    sqs = boto3.client("sqs", endpoint_url=url, region_name="eu-west-1", **secret)
    for name, attributes in QUEUES.items():
        sqs.create_queue(QueueName=name, Attributes=attributes)


if __name__ == "__main__":
    sys.exit(main())
