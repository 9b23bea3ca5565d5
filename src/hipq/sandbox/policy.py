"""What a handler says about how it runs: its limits, its variables and secrets, what it may reach, its packages."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from hipq.errors import Invalid, shown
from hipq.sandbox.addresses import Allowed

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
"""The form of the name of a variable, and of a secret."""
ENVIRONMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}", re.ASCII)
"""The form of the name of an environment."""
MOST_VARIABLES: Final = 100
MOST_VALUE: Final = 32_768
"""Bytes of the value of a variable, and of a secret."""
MOST_HOSTS: Final = 100
_RESERVED: Final = "HIPQ_"
_YEAR: Final = 365 * 86_400
WITH_PACKAGES: Final = ("python", "node")
"""The languages for which there are environments."""


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a job that had an error is tried again; 0 = as the daemon says."""

    after: float = 0.0
    """Seconds until the first of these tries; later pauses double."""
    most: float = 0.0
    """Seconds of the longest pause."""
    attempts: int = 0
    """Tries in all, the first included."""
    give_up_after: float = 0.0
    """Seconds from when the job was added, after which its next error is final."""


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How one version of a handler runs; 0 = as the daemon says, which is also the most there is."""

    run_timeout: float = 0.0
    """Seconds that it may take for one job."""
    memory: int = 0
    """MB that its context may use."""
    cpu: float = 0.0
    """Seconds of processor time that one job may use."""
    concurrency: int = 0
    """Jobs of the type that run at the same time, over all daemons; 0 = any number."""
    retry: RetryPolicy = RetryPolicy()
    network: tuple[str, ...] = ()
    """The hosts that it may reach, of those that the daemon allows: at 80 and 443, or at the port behind one. Code
    without any reaches none, a URL may lead to all of them."""
    variables: dict[str, str] = {}
    """Environment variables."""
    secrets: tuple[str, ...] = ()
    """The names of the tenant's secrets that it has as environment variables."""
    environment: str = ""
    """The daemon's environment whose packages it has."""


def check_policy(policy: Policy, lang: str) -> None:
    """Refuse a policy that can be none, whatever the daemon."""
    _check_numbers(policy)
    if len(policy.network) > MOST_HOSTS:
        raise Invalid(f"a handler's network may name {MOST_HOSTS} hosts, not {len(policy.network):,}")
    Allowed(policy.network, "network")
    _check_variables(policy)
    if policy.environment and not ENVIRONMENT.fullmatch(policy.environment):
        raise Invalid(f"{shown(policy.environment)} is no environment: 1 to 60 letters, digits, '_', '.' and '-'")
    if policy.environment and lang not in WITH_PACKAGES:
        raise Invalid(f"an environment has packages for {' and '.join(WITH_PACKAGES)}, and none for {lang}")
    if lang == "http":
        of_code = ("memory", "cpu", "variables", "secrets")
        if given := [name for name in of_code if getattr(policy, name)]:
            raise Invalid(f"an http handler is a URL, which runs elsewhere: leave out {' and '.join(given)}")


def _check_numbers(policy: Policy) -> None:
    retry = policy.retry
    for name, value, least, most in (
        ("run_timeout", policy.run_timeout, 0.1, _YEAR), ("memory", policy.memory, 16, 1 << 20),
        ("cpu", policy.cpu, 0.1, _YEAR), ("concurrency", policy.concurrency, 1, 1_000_000),
        ("retry's after", retry.after, 0.001, _YEAR), ("retry's most", retry.most, 0.001, _YEAR),
        ("retry's attempts", retry.attempts, 1, 1_000_000), ("retry's give_up_after", retry.give_up_after, 1, _YEAR),
    ):  # fmt: skip
        if value and not least <= value <= most:
            raise Invalid(f"a handler's {name} must be from {least:,} to {most:,}, not {shown(value)}")
    if retry.after and retry.most and retry.most < retry.after:
        raise Invalid(f"a handler's retry has pauses from {retry.after:g} s, and at most {retry.most:g} s: raise most")


def _check_variables(policy: Policy) -> None:
    if len(policy.variables) + len(policy.secrets) > MOST_VARIABLES:
        raise Invalid(f"a handler may have {MOST_VARIABLES} variables and secrets together")
    for name in (*policy.variables, *policy.secrets):
        check_name(name)
    if both := set(policy.variables) & set(policy.secrets):
        raise Invalid(f"{min(both)} is both a variable and a secret: leave out one of them")
    if len(set(policy.secrets)) < len(policy.secrets):
        raise Invalid("a handler's secrets name one twice")
    for name, value in policy.variables.items():
        check_value(value, f"the variable {name}")


def check_name(name: str, what: str = "a variable") -> None:
    """Refuse what can be no name of a variable."""
    if not VARIABLE.fullmatch(name):
        raise Invalid(
            f"{shown(name)} is no name of {what}: letters, digits and '_', at most 100, and no digit to begin with"
        )
    if name.startswith(_RESERVED):
        raise Invalid(f"{name} begins with {_RESERVED}, as hipq's own variables do: give it another name")


def check_value(value: str, whose: str) -> None:
    if "\0" in value:
        raise Invalid(f"{whose} contains NUL, which no variable can have")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(f"{whose} contains half a character, which is not UTF-8") from None
    if size > MOST_VALUE:
        raise Invalid(f"{whose} may have {MOST_VALUE:,} bytes, and has {size:,}")
