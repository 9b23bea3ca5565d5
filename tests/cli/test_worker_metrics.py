"""`hipq worker --metrics`: scrapes of each process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from hipq import Hipq
from tests.cli.conftest import Worker, eventually
from tests.observe.test_metrics import Figures, figures
from tests.servers import free_port


def test_each_process_of_a_worker_answers_on_its_port(folder: Path, worker: Callable[..., Worker]) -> None:
    first = free_port()
    shop = Hipq("shop", f"sqlite:///{folder}/shop.db")
    shop.queue("orders").enqueue("quick")
    running = worker("--processes", "2", "--metrics", f":{first}", "-q", "orders")

    def read(port: int) -> Figures:
        try:
            return figures(urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode())
        except OSError:
            return {}

    found = eventually(lambda: [one for port in (first, first + 1) if (one := read(port))][1:2] and True)
    assert found
    ended = ("hipq_jobs_ended_total", "ok", "orders", "quick")
    eventually(lambda: sum(read(port).get(ended, 0) for port in (first, first + 1)) == 1)
    assert read(first)[("hipq_store_up",)] == 1
    assert any(name[0] == "process_cpu_seconds_total" for name in read(first))
    shop.close()
    running.send(15)
    assert running.ended() == 0


@pytest.mark.parametrize("wrong", ["9100", ":x", ":0", "host:70000"])
def test_an_address_that_is_none_is_refused(folder: Path, worker: Callable[..., Worker], wrong: str) -> None:
    assert folder.exists()
    running = worker("--metrics", wrong)
    assert running.ended() == 2
    assert "--metrics is [HOST]:PORT" in running.text()
