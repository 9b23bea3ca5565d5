"""`python -m bench.growth`: what becomes of hipq's figures as a backlog, lanes, waits, payloads or workers grow.

A curve is flat if its worst point is at least 0.8 of its first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.servers import fresh_database

from bench.curves import QUICK, Curve, Curves, Sizes, workers
from bench.lines import figure
from bench.multiples import picture
from bench.peers import POSTGRES, SQLITE
from bench.stopping import unsynced
from hipq import Hipq

FLAT = 0.8
STORES = {"sqlite": SQLITE, "postgres": POSTGRES}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller amounts")
    parser.add_argument("--store", choices=STORES, help="only this one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw them there")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing: draw what was kept")
    options = parser.parse_args()
    if options.from_json:
        found = [_curve(one) for one in json.loads(options.from_json.read_text())]
    else:
        found = []
        for name in [options.store] if options.store else STORES:
            for curve in _measured(STORES[name], QUICK if options.quick else Sizes()):
                print(table(curve), flush=True)
                found.append(curve)
    if options.json:
        options.json.write_text(json.dumps([curve._asdict() for curve in found], indent=1) + "\n")
    if options.svg:
        options.svg.write_text(picture(found))


def _measured(store: str, sizes: Sizes) -> Iterator[Curve]:
    if store == SQLITE:
        with tempfile.TemporaryDirectory() as folder:
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


def verdict(curve: Curve) -> str:
    (_, first), *_, (_, last) = curve.points
    if curve.x == "worker processes":
        return f"{last / first:.2f} times as fast with the most"
    return f"flat (worst {curve.part:.2f} of the first)" if curve.part >= FLAT else f"{1 / curve.part:.1f} times worse"


def _curve(kept: dict[str, object]) -> Curve:
    points = [(int(size), float(value)) for size, value in kept.pop("points")]  # type: ignore[attr-defined]
    return Curve(**kept, points=points)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
