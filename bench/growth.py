"""`python -m bench.growth`: what becomes of hipq's figures as a backlog, lanes, waits, payloads or workers grow."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from bench.curves import QUICK, Curve, Curves, Sizes, workers
from bench.database import fresh_database
from bench.growth_page import load, verdict, write
from bench.lines import figure
from bench.measure import scratch
from bench.peers import POSTGRES, SQLITE
from bench.stopping import unsynced
from hipq import Hipq

STORES = {"sqlite": SQLITE, "postgres": POSTGRES}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller amounts")
    parser.add_argument("--store", choices=STORES, help="only this one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there, a page and a picture beside")
    options = parser.parse_args()
    found = []
    for name in [options.store] if options.store else STORES:
        for curve in _measured(STORES[name], QUICK if options.quick else Sizes()):
            print(table(curve), flush=True)
            found.append(curve)
    if options.json:
        kept = load(options.json)
        write(options.json, kept._replace(curves=found))


def _measured(store: str, sizes: Sizes) -> Iterator[Curve]:
    if store == SQLITE:
        with scratch() as folder:
            yield from _all(f"sqlite:///{folder}/growth.db", store, sizes)
    else:
        with fresh_database() as url:
            yield from _all(url, store, sizes)
            yield from workers(url, store, sizes)


def _all(url: str, store: str, sizes: Sizes) -> Iterator[Curve]:
    app = Hipq("bench", url)
    app.migrate()
    with unsynced(app) as claiming:
        yield from Curves(app, claiming, store, sizes).all()
    app.close()


def table(curve: Curve) -> str:
    """Two rows of figures, and what they come to."""
    places = "".join(f"{size:>12,}" for size, _ in curve.points)
    values = "".join(f"{figure(value):>12}" for _, value in curve.points)
    return f"\n{curve.store}, {curve.curve}: {verdict(curve)}\n  {curve.x:32}{places}\n  {curve.unit:32}{values}"


if __name__ == "__main__":
    main()
