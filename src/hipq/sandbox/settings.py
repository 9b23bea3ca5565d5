"""The resources that contexts may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from hipq.errors import CannotRun
from hipq.sandbox.policy import Policy
from hipq.sandbox.secrets import NO_SECRETS, Secrets

MODULES = "node_modules"


class ContextSettings(msgspec.Struct, frozen=True):
    trust: bool = False
    """Whether handlers run without a sandbox."""
    memory: int = 512 << 20
    """Bytes of a context, all its processes together."""
    cpu: float = 600.0
    """Seconds of processor time of a job, all its processes together."""
    files: int = 256
    """Open files of a process."""
    processes: int = 64
    """Processes and threads of a context."""
    scratch: int = 64 << 20
    """Bytes of files in a context's own /tmp, and in its /dev/shm."""
    output: int = 16 << 20
    """Bytes a job may print; a job that prints more is killed."""
    network: bool = False
    """Whether handlers have the machine's network, with everything that listens on its loopback."""
    idle_seconds: float = 60.0
    """Seconds a context is kept for its next batch."""
    idle_memory: int = 1 << 30
    """Bytes that all idle contexts may use together; beyond that the largest is ended."""
    most_tasks: int = 10_000
    """Jobs after which a context is replaced."""
    most_contexts: int = 32
    """Contexts alive at the same time, idle ones included."""
    start_seconds: float = 30.0
    """Seconds a context may take to start, and to receive a job."""
    hidden: tuple[str, ...] = ()
    """Folders that no handler may see, wherever they are: those of the daemon's own files."""
    http_allow: tuple[str, ...] = ("public",)
    """Hosts that handlers may reach: names, `*.names`, addresses, networks; 'public' is every public address. Without a
    port (`shop.example:8443`, `10.0.0.0/8:*`) it is their ports 80 and 443."""
    http_together: int = 10
    """Requests of one batch that are under way at the same time."""
    interpreters: Mapping[str, str] = {}
    """Language -> path, where it should not be the interpreter that is found."""
    environments: Mapping[str, str] = {}
    """Folders with packages, by the names that handlers may say: a virtual environment, one with node_modules, both."""

    # What one handler has:
    variables: Mapping[str, str] = {}
    secrets: Secrets = NO_SECRETS
    hosts: tuple[str, ...] = ()
    """Hosts that code may reach, of those in `http_allow`, through the daemon; without any, none."""
    modules: str = ""
    """The folder of the packages that node has."""

    def of(self, policy: Policy, secrets: Secrets) -> ContextSettings:
        """These, as far as this handler may have them. CannotRun if its environment is not here."""
        if policy == Policy():
            return self
        folder = self.environment(policy.environment) if policy.environment else ""
        python, modules = f"{folder}/bin/python", f"{folder}/{MODULES}"
        return replace(
            self,
            memory=min(policy.memory << 20 or self.memory, self.memory),
            cpu=min(policy.cpu or self.cpu, self.cpu),
            variables=policy.variables,
            secrets=secrets,
            hosts=policy.network,
            network=self.network and not policy.network,
            interpreters={**self.interpreters, "python": python} if os.path.exists(python) else self.interpreters,
            modules=modules if os.path.isdir(modules) else "",
        )

    def environment(self, name: str) -> str:
        if name not in self.environments:
            there = ", ".join(sorted(self.environments)) or "none"
            raise CannotRun(f"this daemon has no environment {name} (there are: {there}): see --environment")
        return os.path.abspath(self.environments[name])

    def packages(self, policy: Policy) -> str:
        """The folder to which its environment leads now: of a link that was moved, what ran before is not to be had."""
        return os.path.realpath(self.environment(policy.environment)) if policy.environment else ""


def mark_of(policy: Policy, secrets: Secrets, packages: str = "") -> str:
    """A value that differs for handlers that must not share a context; "" if there is nothing that keeps them apart.
    `packages`: the folder that they have them from."""
    differs = (policy.memory, policy.cpu, policy.network, policy.variables, packages, secrets.values)
    return sha256(msgspec.json.encode(differs)).hexdigest()[:16] if any(differs) else ""
