"""The figures of `python -m bench.daemon` as a page."""

from __future__ import annotations

from typing import Any

_SHORTCUT = (
    "Most posts go a short way of their own through uvicorn (`daemon/http/fast_protocol.py`), at the price of a",
    "dependency on its internals, whose version is bounded for that. It pays for many connections: beside the same",
    "daemon without it, where posts go through uvicorn's and Starlette's usual way into the same journal writer, which",
    "brings whatever waits to disk with one write and one sync, a post at 64 connections took 34 µs of processor time",
    "instead of 89, and 2.1 times as many were taken a second; at one connection, where the disk is waited for, 1.4",
    "times as many (medians of eight pairs in turns, on 2 busy cores). About a fifth of a post is saved by",
    "not parsing a head again that is like the one before.",
)


def page(found: dict[str, Any]) -> str:
    lines = [
        "# A daemon: how fast", "",
        f"Made by `make bench-daemon` on {found['cores']} cores, load {found['load']:.1f} before. Both sides of a line",
        "ran in turns, three rounds, the best of each. The client, and what it talks to, share the cores.", "",
    ]  # fmt: skip
    if http := found.get("http"):
        lines += [
            "## Jobs over HTTP", "",
            "One job of about 100 bytes a request. hipq: token checked, journal written and synced (fdatasync) before",
            "the reply, jobs taken into SQLite meanwhile; they are not run. Starlette: the same body is read, and",
            "nothing is written. Starlette that syncs: it appends the body to a file, and syncs that before the reply.",
            "", "| connections | side | a second | p50 ms | p99 ms | hipq is |",
            "| ---: | --- | ---: | ---: | ---: | ---: |",
        ]  # fmt: skip
        for connections, line in http.items():
            for name, side in (("hipq", "hipq"), ("bare", "Starlette"), ("synced", "Starlette that syncs")):
                one = line[name]
                of = line["hipq"]["per second"] / one["per second"]
                figures = f"{one['per second']:,.0f} | {one['p50']:.2f} | {one['p99']:.2f} | {of:.2f}"
                lines.append(f"| {connections} | {side} | {figures} |")
        lines += ["", *_SHORTCUT, ""]
    if contexts := found.get("contexts"):
        lines += [
            "## Jobs in contexts", "",
            "One sandboxed context, batches of 100, each job with its payload, its report and its output read; the",
            "loop is a program that reads lines, calls the same function and prints what it returns.", "",
            "| language | jobs a second | bare loop | ratio |", "| --- | ---: | ---: | ---: |",
        ]  # fmt: skip
        for language, line in contexts.items():
            lines.append(f"| {language} | {line['context']:,.0f} | {line['loop']:,.0f} | {line['ratio']:.3f} |")
        lines.append("")
    if idle := found.get("idle"):
        lines += [
            "## Idle", "", f"{idle['megabytes']:.0f} MB and {idle['core'] * 100:.2f} % of a core, on SQLite.", "",
        ]  # fmt: skip
    return "\n".join(lines)
