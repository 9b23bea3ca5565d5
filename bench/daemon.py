"""`python -m bench.daemon`: what a daemon takes in over HTTP, beside Starlette that writes nothing, and Starlette that
syncs what it writes; what its contexts do, beside a bare loop; what it uses when nothing happens. In turns, the
best of three."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.daemon_contexts import here, in_a_loop, in_contexts
from bench.daemon_http import Posted, post
from bench.daemon_page import page
from bench.transports_http import server

BODY: Final = b'{"amount":5,"currency":"EUR","reference":"order-1717171717","note":"as they come, about 100 bytes"}\n'
ROUNDS: Final = 3
TARGET: Final = 0.6
REQUESTS: Final = {1: 3_000, 64: 20_000}
COUNTS: Final = {
    "python": (20_000, 400_000),
    "node": (20_000, 400_000),
    "php": (20_000, 400_000),
    "shell": (2_000, 4_000),
}
IDLE_SECONDS: Final = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here, and a page beside it")
    parser.add_argument("--only", choices=("http", "contexts", "idle"))
    chosen = parser.parse_args()
    found: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
    for name, measure in (("http", http), ("contexts", contexts), ("idle", idle)):
        if chosen.only in (None, name):
            found[name] = measure()
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
        chosen.json.with_suffix(".md").write_text(page(found))


def http() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        token, environment = _prepared(folder)
        ours = stack.enter_context(server(_serve(folder), environment))
        ports = {"hipq": ours} | {
            name: stack.enter_context(server(_starlette(name), environment | {"BENCH_FILE": f"{folder}/bodies"}))
            for name in ("bare", "synced")
        }
        for connections, requests in REQUESTS.items():
            sides: dict[str, list[Posted]] = {name: [] for name in ports}
            for _ in range(ROUNDS):
                for name, port in ports.items():
                    sides[name].append(post(port, token, BODY, connections, requests))
            best = {name: min(some, key=lambda one: one.seconds) for name, some in sides.items()}
            line = {
                name: {"per second": len(one.times) / one.seconds, "p50": one.at(0.5), "p99": one.at(0.99)}
                for name, one in best.items()
            }
            ratio = line["hipq"]["per second"] / line["bare"]["per second"]
            found[str(connections)] = line | {"ratio": ratio}
            print(f"{connections:3} connections: hipq {_told(line['hipq'])}, Starlette {_told(line['bare'])}, "
                  f"ratio {ratio:.2f}{'' if ratio >= TARGET else f' (wanted {TARGET})'}; "
                  f"Starlette that syncs {_told(line['synced'])}", flush=True)  # fmt: skip
    return found


def _told(line: dict[str, float]) -> str:
    return f"{line['per second']:,.0f}/s p50 {line['p50']:.2f} ms p99 {line['p99']:.2f} ms"


def _prepared(folder: str) -> tuple[str, dict[str, str]]:
    """A tenant's token. Jobs are taken in and stored, but not run: that is measured apart."""
    from hipq import Hipq
    from hipq.daemon.tenancy.tenants import Tenants

    app = Hipq("daemon", f"sqlite:///{folder}/daemon.db")
    app.queue("jobs")
    app.migrate()
    app.pause("jobs")
    tenants = Tenants(app.store)
    tenants.add("acme")
    _, token = tenants.token("acme")
    app.close()
    return token, {**os.environ, "PYTHONPATH": os.getcwd()}


def _starlette(name: str) -> tuple[str, ...]:
    return ("uvicorn", f"bench.daemon_http:{name}", "--log-level", "warning", "--no-access-log")


def _serve(folder: str) -> tuple[str, ...]:
    return (
        "hipq.cli.main", "serve", "--db", f"sqlite:///{folder}/daemon.db", "--journal", f"{folder}/journal",
        "--log-level", "warning",
    )  # fmt: skip


def contexts() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for language in here():
        ours, bare = COUNTS[language]
        sides = [(in_contexts(language, ours), in_a_loop(language, bare)) for _ in range(ROUNDS)]
        best = max(one for one, _ in sides), max(one for _, one in sides)
        found[language] = {"context": best[0], "loop": best[1], "ratio": best[0] / best[1]}
        print(f"{language:7} {best[0]:10,.0f} jobs/s in a context, {best[1]:12,.0f} in a bare loop", flush=True)
    return found


def idle() -> dict[str, float]:
    """Megabytes, and the part of a core, of a daemon to which nothing happens."""
    with tempfile.TemporaryDirectory() as folder:
        _, environment = _prepared(folder)
        command = [sys.executable, "-m", *_serve(folder), "--port", "0"]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            time.sleep(5)
            before = _ticks(process.pid)
            time.sleep(IDLE_SECONDS)
            used = (_ticks(process.pid) - before) / os.sysconf("SC_CLK_TCK") / IDLE_SECONDS
            status = Path(f"/proc/{process.pid}/status").read_text()
            size = int(status.split("VmRSS:")[1].split()[0]) / 1024
        finally:
            process.terminate()
            process.wait()
    print(f"idle: {size:.0f} MB (wanted 80), {used * 100:.2f} % of a core (wanted 1)", flush=True)
    return {"megabytes": size, "core": used}


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    main()
