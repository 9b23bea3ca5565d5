"""The peers that are measured beside hipq: those that run, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.peers import Listed, PeerFailed
from bench.peers.driven import PATIENCE, Driven
from bench.peers.environment import in_a_line, install

Found = TypeVar("Found")


class Described(NamedTuple):
    """A peer that was measured, for the report."""

    name: str
    store: str
    durability: str
    version: str
    setting: str


class Failure(NamedTuple):
    name: str
    store: str
    reason: str


class Company:
    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._installed: list[tuple[Listed, Path]] = []
        self.running: list[Driven] = []
        self.described: list[Described] = []
        self.failures: list[Failure] = []

    def install(self, peers: Iterable[Listed]) -> None:
        """Before the clock starts. Of two peers in one environment that does not install, both are named."""
        failed: dict[str, PeerFailed] = {}
        for listed in peers:
            try:
                if listed.environment in failed:
                    raise failed[listed.environment]
                self._installed.append((listed, install(listed)))
            except PeerFailed as reason:
                failed[listed.environment] = reason
                self._failed(listed, str(reason))

    def start(self, address: Callable[[Listed], str]) -> None:
        """Each at an address of its own."""
        for listed, python in self._installed:
            try:
                driven = Driven(listed, python, address(listed), self._patience)
            except PeerFailed as reason:
                self._failed(listed, str(reason))
                continue
            self.running.append(driven)
            if (about := self.ask(driven, Driven.about, "")) is not None:
                self.described.append(Described(listed.name, listed.store, listed.durability, **about))

    def ask(self, driven: Driven, question: Callable[[Driven], Found], what: str) -> Found | None:
        """Its answer; None: it failed at that, which is noted. One that has ended is not asked again."""
        try:
            return question(driven)
        except PeerFailed as reason:
            self._failed(driven.listed, f"{what}: {reason}" if what else str(reason))
            if driven.ended or not what:
                driven.close()
                self.running.remove(driven)
            return None

    def close(self) -> None:
        while self.running:
            self.running.pop().close()

    def _failed(self, listed: Listed, reason: str) -> None:
        reason = in_a_line(reason)
        print(f"! {listed.name} ({listed.store}): {reason}", flush=True)
        self.failures.append(Failure(listed.name, listed.store, reason))
