"""The types that a job type is made of. A type checker takes both for Any where a program does not say them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker knows it; it need not be installed

    T = TypeVar("T", default=Any)
    """The type of a job's data."""
    R = TypeVar("R", default=Any)
    """The type of a job's result."""
    H = TypeVar("H", default=Any)
    """What a handler beside the job's own returns."""
else:
    from typing import TypeVar

    T, R, H = TypeVar("T"), TypeVar("R"), TypeVar("H")
