"""A store in front of another one. Each verb of the protocols goes through one method, so none is left out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, cast

from hipq.stores.protocols import Store

VERBS: Final = frozenset(
    name for part in Store.__mro__[1:-1] for name, verb in vars(part).items() if callable(verb) and name[0] != "_"
)
"""The names of all verbs."""


class Forwarding(ABC):
    @abstractmethod
    def _call(self, verb: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """Carry out a call of this verb with these arguments."""

    def as_store(self) -> Store:
        """This object, typed as a store: it has every verb, though its class does not spell them."""
        return cast(Store, self)


def _forwarded(verb: str) -> Callable[..., Any]:
    def call(self: Forwarding, *given: Any, **more: Any) -> Any:
        return self._call(verb, given, more)

    return call


for _verb in VERBS:
    setattr(Forwarding, _verb, _forwarded(_verb))
