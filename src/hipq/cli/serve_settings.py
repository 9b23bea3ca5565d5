"""What the options of `hipq serve` are made into, when it starts and when it is told to read them again."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from hipq import config
from hipq.cli.complain import note
from hipq.cli.configured import WORDS, of_file
from hipq.cli.listening import LOOPBACK
from hipq.cli.target import daemon_database
from hipq.errors import HipqError, Invalid
from hipq.observe import logs
from hipq.sandbox.policy import ENVIRONMENT

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon, Options
    from hipq.daemon.http.request import Limits
    from hipq.daemon.http.serving import Serving

RELOADED: Final = frozenset({
    "body_size", "body_timeout", "connections", "context_tasks", "drain", "give_up_after", "handler_network",
    "head_timeout", "http_allow", "journal_size", "keep", "log_format", "log_level", "memory", "retry_after",
    "retry_most", "run_timeout", "shutdown_delay",
})  # fmt: skip
"""Options that a daemon takes while it runs; others only when it starts."""

_log = logging.getLogger("hipq")


class Settings(NamedTuple):
    options: Options
    limits: Limits


def settings(given: Mapping[str, Any]) -> Settings:
    """Invalid if they do not go together."""
    from hipq.daemon.daemon import Options
    from hipq.daemon.http.request import Limits
    from hipq.sandbox import ContextSettings

    if given["no_tokens"]:
        _check_open(given["host"], given["handler_network"])
    contexts = ContextSettings(
        trust=given["trust_handlers"], memory=given["memory"] << 20, network=given["handler_network"],
        http_allow=tuple(given["http_allow"]) or ("public",), most_tasks=given["context_tasks"],
        most_contexts=max(32, 2 * given["concurrency"]), environments=_environments(given["environment"]),
    )  # fmt: skip
    alike = {name: given[name] for name in (
        "db", "journal", "concurrency", "retry_after", "retry_most", "give_up_after", "run_timeout", "keep", "drain",
        "shutdown_delay",
    )}  # fmt: skip
    options = Options(
        **alike, journal_bytes=given["journal_size"] << 20, job_log=given["job_log"] or "", contexts=contexts,
        secrets_key_file=given["secrets_key_file"] or "",
    )  # fmt: skip
    limits = Limits(
        body=given["body_size"] << 20, body_seconds=given["body_timeout"], head_seconds=given["head_timeout"],
        connections=_allowed(given["connections"]),
    )  # fmt: skip
    return Settings(options, limits)


class Reload:
    """Called at each SIGHUP: what hipq.toml says by now counts, as far as it can while the daemon runs. The command
    line and the environment go before it, as when the daemon was started."""

    def __init__(self, context: click.Context, given: Mapping[str, Any], daemon: Daemon, serving: Serving) -> None:
        self._context, self._given, self._daemon, self._serving = context, dict(given), daemon, serving

    def __call__(self) -> None:
        try:
            found = self._read()
            changed = {name: value for name, value in found.items() if value != self._given[name]}
            taken = {name: value for name, value in changed.items() if name in RELOADED}
            wanted = settings(self._given | taken)
        except (HipqError, click.UsageError) as error:
            _log.error("SIGHUP: nothing was reloaded: %s", error)
            return
        if taken:
            self._given |= taken
            self._serving.use(*wanted)
            logs.configure(self._given["log_level"], self._given["log_format"])
            logs.subscribe(self._daemon.app.events)
            _log.info(logs.LogLine("reloaded", dict(sorted(taken.items()))))
        if left := sorted(changed.keys() - taken.keys()):
            _log.warning("SIGHUP: not reloaded, as only a restart can change this: %s", ", ".join(left))
        if not changed:
            _log.info("SIGHUP: nothing has changed")

    def _read(self) -> dict[str, Any]:
        """What the command line, the environment and the file say together."""
        command, found = self._context.command, config.read()
        usual = of_file(command, found, found.settings.serve)
        words = list(self._context.meta[WORDS])
        context = command.make_context("serve", words, parent=self._context.parent, default_map=usual)
        return context.params | {"db": daemon_database(context.params["db"])}


def _environments(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, is_one, folder = text.partition("=")
        if not is_one or not folder or not ENVIRONMENT.fullmatch(name):
            raise Invalid(f"--environment must be like science=/srv/science, not {text!r:.80}")
        if name in found:
            raise Invalid(f"--environment says twice what {name} is: leave out one of them")
        found[name] = folder
    return found


def proxies(given: Sequence[str]) -> tuple[str, ...]:
    """Those that are believed; Invalid if one is neither an address nor a network."""
    for word in given:
        try:
            ip_network(word)
        except ValueError as error:
            raise Invalid(f"--trusted-proxy must be an address or a network, like 10.0.0.0/8: {error}") from None
    return tuple(given)


def _check_open(host: str, handler_network: bool) -> None:
    """Whoever can connect may do everything: Invalid if that is more than this machine's users."""
    if host not in LOOPBACK:
        raise Invalid(f"--no-tokens lets everybody do everything, so it needs a loopback address, not {host!r:.80}")
    if handler_network:
        raise Invalid(
            "--no-tokens with --handler-network lets every handler do everything at this daemon, as it reaches the "
            "loopback address: leave out one of them"
        )


def _allowed(connections: int) -> int:
    """As many of these as the process may have descriptors for."""
    from hipq.daemon.http.connections import raise_descriptors

    allowed = raise_descriptors(connections)
    if allowed < connections:
        note(f"this process may have so few descriptors that {allowed} connections are allowed, not {connections}: "
             "raise `ulimit -n`")  # fmt: skip
    return allowed
