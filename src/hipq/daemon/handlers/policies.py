"""What policies of handlers come to at one daemon: what it cannot give them, and how their jobs are tried again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from hipq.daemon.options import QUEUE
from hipq.errors import CannotRun, Invalid
from hipq.job.retries import backoff
from hipq.job.spec import Spec
from hipq.sandbox.bubblewrap import is_below
from hipq.sandbox.policy import Policy, RetryPolicy
from hipq.sandbox.settings import MODULES

if TYPE_CHECKING:
    from hipq.daemon.options import Options
    from hipq.sandbox import Handler

_FOR_EVER: Final = 1_000_000
_KNOWN: Final = 10_000


class Policies(Mapping[str, Spec]):
    """The specs of all job types there may be: the daemon's, and what each handler has instead. Their code is found
    when they run."""

    def __init__(self, options: Options) -> None:
        self._specs: dict[tuple[str, float, RetryPolicy], Spec] = {}
        self.use(options)

    def use(self, options: Options) -> None:
        """These count from now on."""
        self._options = options
        self._specs.clear()

    def __getitem__(self, name: str) -> Spec:
        return self.spec(name, Policy())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def spec(self, name: str, policy: Policy) -> Spec:
        """By what the jobs of this type run and are tried again. A handler may have less than the daemon, not more."""
        key = (name, policy.run_timeout, policy.retry)
        found = self._specs.get(key)
        if found is None:
            if len(self._specs) > _KNOWN:
                self._specs.clear()
            found = self._specs[key] = self._made(*key)
        return found

    def _made(self, name: str, run_timeout: float, retry: RetryPolicy) -> Spec:
        options = self._options
        after = retry.after or options.retry_after
        most = max(retry.most or options.retry_most, after)
        return Spec(
            name, QUEUE, fn=_elsewhere, retry=backoff(retry.attempts or _FOR_EVER, base=after, cap=most),
            run_timeout=min(run_timeout or options.run_timeout, options.run_timeout),
            lifetime=min(retry.give_up_after or options.give_up_after, options.give_up_after),
        )  # fmt: skip

    def check(self, handler: Handler) -> None:
        """Invalid if this daemon has not what the handler wants."""
        options, contexts, policy = self._options, self._options.contexts, handler.policy
        for name, value, most in (
            ("run_timeout", policy.run_timeout, options.run_timeout),
            ("memory", policy.memory, contexts.memory >> 20),
            ("cpu", policy.cpu, contexts.cpu),
            ("retry's give_up_after", policy.retry.give_up_after, options.give_up_after),
        ):
            if value > most:
                raise Invalid(f"a handler's {name} may be {most:,g} at this daemon, not {value:,g}")
        if policy.environment:
            self._check_environment(policy.environment, handler.lang)

    def _check_environment(self, name: str, lang: str) -> None:
        try:
            folder = self._options.contexts.environment(name)
        except CannotRun as error:
            raise Invalid(str(error)) from None
        if not has_packages(folder)[lang]:
            raise Invalid(f"the environment {name} has no packages for {lang}")


def has_packages(folder: str) -> Mapping[str, bool]:
    """The languages for which a folder has packages."""
    python, node = os.path.join(folder, "bin/python"), os.path.join(folder, MODULES)
    return {"python": os.access(python, os.X_OK), "node": os.path.isdir(node)}


def check_environments(environments: Mapping[str, str], hidden: Iterable[str]) -> None:
    """Refuse, when a daemon starts, folders that have no packages, or that have what no handler may see."""
    hides = list(hidden)
    for name, folder in environments.items():
        leads = [os.path.realpath(path) for path in (folder, os.path.join(folder, MODULES))]
        for one in hides:
            if any(is_below(one, path) for path in leads):
                raise Invalid(f"the environment {name} has files of the daemon's own, in {one}: give it another folder")
        if not any(has_packages(folder).values()):
            raise Invalid(
                f"the environment {name} has no packages: {folder} is neither a virtual environment (bin/python), nor "
                f"has it {MODULES}"
            )


def _elsewhere(_job: object) -> None:
    raise AssertionError("the code of such jobs runs in contexts")
