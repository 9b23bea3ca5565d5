"""The other process of `hipq.benchmark.pick_up`: it reads from its input where to work, and works until that closes."""

from __future__ import annotations

import json
import sys
import threading

from hipq.benchmark.workbench import CONCURRENCY, LEASE, PICKING, bench_app
from hipq.engine.loop import Engine


def main() -> None:
    url, token = json.loads(sys.stdin.readline())
    app = bench_app(url, token)
    engine = app.engine([PICKING], CONCURRENCY, lease=LEASE)
    threading.Thread(target=_end_with_input, args=[engine], daemon=True).start()
    try:
        engine.run()
    finally:
        engine.executor.close()
        app.close()


def _end_with_input(engine: Engine) -> None:
    sys.stdin.read()
    engine.stop()


if __name__ == "__main__":
    main()
