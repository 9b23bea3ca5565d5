"""The meaning of the figures: what bounds them, in a few sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hipq.benchmark.picture import milliseconds

_FAST: Final = 0.02
"""Milliseconds of a sync below which it is doubtful whether a disk was waited for."""


def meaning(report: dict[str, Any]) -> Iterator[str]:
    around, rates, pick_up = report["surroundings"], report["rates"], report["pick_up"]
    commit = around["commit_ms"]
    rate = {line["name"]: line["per_second"] for line in rates}
    yield (
        f"A commit takes {milliseconds(commit)} here{_of_which(around)}: who waits for a commit each time cannot "
        f"exceed about {1000 / commit:,.0f} a second. That bounds enqueue and answer, one at a time."
    )
    yield (
        f"Calls at the same time share commits: aenqueue added {rate['aenqueue'] / rate['enqueue']:.1f} times as many "
        f"jobs a second as enqueue, enqueue_many {rate['enqueue_many'] / rate['enqueue']:.0f} times as many; "
        f"answer_many brought {rate['answer_many'] / rate['answer']:.1f} times as many answers as answer."
    )
    yield (
        f"One worker process ran {rate['drain']:,.0f} jobs a second that do nothing, {1e6 / rate['drain']:,.0f} "
        f"microseconds each: that is what hipq adds to the work of a handler. {_more(around)}"
    )
    yield (
        f"Half of the jobs started within {milliseconds(pick_up['p50'])} after enqueue was called, commit included, "
        f"99 % within {milliseconds(pick_up['p99'])}; the slowest of {pick_up['jobs']:,} took "
        f"{milliseconds(pick_up['max'])}."
    )
    yield from _warnings(around)


def _of_which(around: dict[str, Any]) -> str:
    if "sync_ms" in around:
        return f", of which the disk's sync takes {milliseconds(around['sync_ms'])}"
    return f", of which the way to the server and back takes {milliseconds(around['round_trip_ms'])}"


def _more(around: dict[str, Any]) -> str:
    if around["database"] == "SQLite":
        return "SQLite has one writer at a time: more processes help handlers that compute, not these."
    return "More processes, here or on other machines, can run more: until the server is busy."


def _warnings(around: dict[str, Any]) -> Iterator[str]:
    if around.get("sync_ms", 1) < _FAST:
        yield (
            f"A sync in {milliseconds(around['sync_ms'])} is faster than most disks: see that this directory is not in "
            "memory, nor behind a cache that forgets when the power fails."
        )
    if around.get("innodb_flush_log_at_trx_commit", 1) in (0, 2) or around.get("sync_binlog") == 0:
        flush, binlog = around["innodb_flush_log_at_trx_commit"], around["sync_binlog"]
        yield (
            f"This server has innodb_flush_log_at_trx_commit {flush} and sync_binlog {binlog}: commits do not wait for "
            "the disk, and jobs that were acknowledged may be lost when the machine fails."
        )
    if around.get("fsync", "on") == "off" or around.get("synchronous_commit", "on") == "off":
        yield (
            f"This server has fsync {around['fsync']} and synchronous_commit {around['synchronous_commit']}: commits "
            "do not wait for the disk, and jobs that were acknowledged may be lost when the machine fails."
        )
