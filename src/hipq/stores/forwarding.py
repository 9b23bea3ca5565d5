"""A store in front of another one: each verb of the protocols passes one place, so none is left out."""

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
        """What a call of this verb, with these arguments, comes to."""

    def as_store(self) -> Store:
        """This, as what it is for its callers: it has every verb, though its class does not spell them."""
        return cast(Store, self)


def _forwarded(verb: str) -> Callable[..., Any]:
    def call(self: Forwarding, *given: Any, **more: Any) -> Any:
        return self._call(verb, given, more)

    return call


for _verb in VERBS:
    setattr(Forwarding, _verb, _forwarded(_verb))
