"""Run simulations: `python -m tests.simulation --runs 1000`."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.simulation import Broken, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many different runs")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one run only, with this seed")
    parser.add_argument("--trace", action="store_true", help="print every step")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.start, options.start + options.runs)
    logging.getLogger("hipq").setLevel(logging.CRITICAL)  # a simulated scheduler raises, and the engine says so
    began = time.monotonic()
    for done, seed in enumerate(seeds, 1):
        try:
            simulate(seed, trace=options.trace)
        except Broken as broken:
            print(broken, file=sys.stderr)
            print(f"again: python -m tests.simulation --seed {seed} --trace", file=sys.stderr)
            return 1
        if done % 100 == 0:
            print(f"{done} runs, {time.monotonic() - began:.1f} s", flush=True)
    print(f"{len(seeds)} runs, all invariants held, {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
