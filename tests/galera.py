"""A Galera cluster of MariaDB for the tests: three nodes on this machine, to be killed, frozen and started anew."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pymysql
import pytest

from tests.mariadb_server import OwnMariaDB, admin, program
from tests.servers import free_port

_PLACES: Final = (Path("/usr/lib/galera/libgalera_smm.so"), Path("/usr/lib64/galera-4/libgalera_smm.so"))
PROVIDER: Final = next((path for path in _PLACES if path.exists()), None)
JOIN_SECONDS: Final = 90.0


class Node(OwnMariaDB):
    """`peers`: where the others listen for each other, and this one at `here`."""

    def __init__(self, number: int, here: int, peers: list[int]) -> None:
        self._here, self.whole = here, ["ON", "Synced", str(number)]
        super().__init__(
            in_memory=True, wsrep_on="ON", wsrep_provider=str(PROVIDER), wsrep_cluster_name="hipq",
            wsrep_node_name=f"node{number}", wsrep_node_address="127.0.0.1", wsrep_sst_method="rsync",
            binlog_format="ROW", innodb_autoinc_lock_mode="2",
            wsrep_cluster_address="gcomm://" + ",".join(f"127.0.0.1:{port}" for port in peers),
            innodb_flush_log_at_trx_commit="0", innodb_doublewrite="OFF", performance_schema="OFF",
        )  # fmt: skip

    def begin(self) -> None:
        """As the first node of a new cluster."""
        self.settings["wsrep_new_cluster"] = "ON"
        super().start()
        del self.settings["wsrep_new_cluster"]

    def start(self) -> None:
        super().start()
        self.joined()

    def _started(self, port: int) -> bool:
        """What it listens on while it joins is chosen anew: somebody else may have it by now."""
        self.settings["wsrep_sst_receive_address"] = f"127.0.0.1:{free_port()}"
        self.settings["wsrep_provider_options"] = (
            f"gmcast.listen_addr=tcp://127.0.0.1:{self._here};ist.recv_addr=127.0.0.1:{free_port()};gcache.size=128M;"
            "evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;evs.keepalive_period=PT0.5S"
        )
        return super()._started(port)

    def joined(self) -> None:
        """It answers, with all the others have written, and the cluster is whole. A node that was cut off for too long
        ends itself, to be started anew by whoever looks after it."""
        until = time.monotonic() + JOIN_SECONDS
        while [self.said(f"wsrep_{name}") for name in ("ready", "local_state_comment", "cluster_size")] != self.whole:
            assert time.monotonic() < until, f"{self.settings['wsrep_node_name']} has not joined the cluster"
            if self._process and self._process.poll() is not None:
                super().start()
            time.sleep(0.1)

    def said(self, status: str) -> str:
        with suppress(pymysql.Error, OSError), admin(self.url) as conn:
            cursor = conn.cursor()
            cursor.execute("SHOW GLOBAL STATUS LIKE %s", (status,))
            ((_, value),) = cursor.fetchall()
            return str(value)
        return ""


@contextmanager
def cluster() -> Iterator[list[Node]]:
    missing = [name for name, there in (("galera-4", PROVIDER), ("rsync", program("rsync"))) if not there]
    if missing:
        pytest.skip(f"no Galera here: install the package {' and '.join(missing)}")
    ports = [free_port() for _ in range(3)]
    nodes: list[Node] = []
    try:
        for number, port in enumerate(ports, 1):
            nodes.append(Node(number, port, ports))
            nodes[-1].start() if number > 1 else nodes[-1].begin()
        for node in nodes:
            node.whole = nodes[-1].whole
            node.joined()
        yield nodes
    finally:
        for node in nodes:
            with suppress(OSError):
                node.thaw()
            node.close()
