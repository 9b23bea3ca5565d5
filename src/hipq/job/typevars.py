"""The type variables of a job type. A type checker takes them for Any where a program does not say them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker knows it; it need not be installed

    from hipq.job.outcome import Failed, Retry

    T = TypeVar("T", default=Any)
    """The type of a job's data."""
    R = TypeVar("R", default=Any)
    """The type of a job's result."""
    A = TypeVar("A", default=Any)
    """The type of an answer's data."""
    H = TypeVar("H", default=Any)
    """What a handler returns if nobody looks at its result."""
    V = TypeVar("V", bound=Retry | Failed | None)
    """What a retry handler returns."""
else:
    from typing import TypeVar

    T, R, A, H, V = map(TypeVar, "TRAHV")
