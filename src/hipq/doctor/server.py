"""Whether a database server has room for another connection, keeps what it acknowledges, and lets hipq do its work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hipq.doctor.finding import Finding, note, ok, problem, several, size, warning
from hipq.stores.health.facts import POSTGRESQL, Health, ServerHealth

NEARLY_FULL: Final = 0.80
FULL: Final = 0.95
"""The part of the connections that may be open."""
_UNSAFE: Final = {
    "fsync": ("off", "on"),
    "full_page_writes": ("off", "on"),
    "synchronous_commit": ("off", "on"),
    "innodb_flush_log_at_trx_commit": ("02", "1"),
    "innodb_doublewrite": ("OFF", "ON"),
}
"""Settings with which a crash of the server or its machine loses what was acknowledged, and what they should be."""
SMALL_PACKET: Final = 16 << 20
"""Bytes of a statement that a MariaDB server takes by default."""
SHORT_WAIT: Final = 60
"""Seconds after which it may cut an idle connection."""


def server(health: Health, one: ServerHealth) -> Iterator[Finding]:
    is_postgres = health.kind == POSTGRESQL
    yield _connections(one, is_postgres)
    if one.standby:
        advice = "connect to the primary server; or promote this one, if that is what should have happened"
        what = "this is a standby server" if is_postgres else "the server is read_only, as a replica is"
        yield problem(f"{what}: nothing can be written here", advice)
    yield from _forgetful(one.settings)
    yield from _denied(one)
    if not is_postgres:
        yield from _maria(one.settings)
    if not one.sees_all:
        sentence = "this user is not shown what others do in the database: long transactions may go unnoticed"
        right = "pg_read_all_stats" if is_postgres else "PROCESS ON *.*"
        yield note(sentence, f"`GRANT {right} TO` this user, to have them checked")


def _connections(one: ServerHealth, listens: bool) -> Finding:
    part = one.connections / max(one.max_connections, 1)
    facts = {"connections": one.connections, "max_connections": one.max_connections}
    sentence = f"{one.connections} of {one.max_connections} connections are open"
    if part < NEARLY_FULL:
        return ok(sentence, facts=facts)
    advice = "end what is idle, or raise max_connections; each hipq process opens up to ten"
    advice += ", and one to listen" if listens else ""
    return (problem if part >= FULL else warning)(f"{sentence}: soon nobody can connect", advice, facts=facts)


def _forgetful(settings: Mapping[str, str]) -> Iterator[Finding]:
    unsafe = {name: good for name, (bad, good) in _UNSAFE.items() if name in settings and settings[name] in bad}
    if settings.get("log_bin") == "ON" and settings.get("sync_binlog") == "0":  # whose word counts when it recovers
        unsafe["sync_binlog"] = "1"
    if unsafe:
        said = " and ".join(f"{name} is {settings[name]}" for name in unsafe)
        sentence = f"{said}: a crash of the server can lose what was acknowledged"
        advice = f"set {', '.join(f'{name} = {good}' for name, good in unsafe.items())} in the server's settings"
        yield warning(sentence, advice, facts=dict(settings))


def _denied(one: ServerHealth) -> Iterator[Finding]:
    if one.denied:
        first = ", ".join(one.denied[:3]) + (", ..." if len(one.denied) > 3 else "")
        sentence = f"this user lacks {several(len(one.denied), 'right')} without which no job is added or run: {first}"
        advice = "`GRANT SELECT, INSERT, UPDATE, DELETE ON` the database `TO` this user"
        yield problem(sentence, advice, facts={"denied": list(one.denied)})


def _maria(settings: Mapping[str, str]) -> Iterator[Finding]:
    if settings.get("log_bin") == "ON" and settings.get("binlog_format") == "STATEMENT":
        sentence = "binlog_format is STATEMENT: the server refuses writes at READ COMMITTED, at which hipq works"
        advice = "set binlog_format = MIXED, or ROW, in the server's settings"
        yield problem(sentence, advice, facts=dict(settings))
    packet, wait = int(settings.get("max_allowed_packet", SMALL_PACKET)), int(settings.get("wait_timeout", SHORT_WAIT))
    if packet < SMALL_PACKET:
        sentence = f"max_allowed_packet is {size(packet)}: jobs, batches of jobs and results above that are refused"
        yield warning(sentence, "set max_allowed_packet = 64M in the server's settings", facts={"packet": packet})
    if wait < SHORT_WAIT:
        sentence = f"wait_timeout is {wait} s: connections that idle for so long are cut, and made anew when needed"
        yield note(sentence, "set wait_timeout = 600, or more, in the server's settings", facts={"wait": wait})
    modes = settings.get("sql_mode", "").split(",")
    if "sql_mode" in settings and not {"STRICT_ALL_TABLES", "STRICT_TRANS_TABLES"} & set(modes):
        sentence = "sql_mode is not strict: what other programs write into hipq's tables may be cut to fit"
        advice = "add STRICT_TRANS_TABLES to sql_mode, in the server's settings; hipq's own sessions are strict already"
        yield note(sentence, advice, facts={"sql_mode": settings["sql_mode"]})
