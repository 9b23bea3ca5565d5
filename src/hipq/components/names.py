"""Jobtypes and callbacks as every component takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hipq.daemon.job_factory import lane
from hipq.daemon.tenancy.tenants import jobtype_name, tenant_name
from hipq.errors import Invalid
from hipq.limits.tenants import BETWEEN

Found = TypeVar("Found")
Callback = Callable[[Exception | None, Any], None] | None
"""Called once: with None and what was found, or with what went wrong and None."""


def pair(jobtype: str) -> tuple[str, str]:
    """Tenant and type: no tenant has a `-` in its name."""
    tenant, dash, name = jobtype.partition("-")
    if not (tenant and dash and name):
        raise Invalid(f"a jobtype is tenant-jobtype here, not {jobtype!r:.60}")
    return tenant_name(tenant), jobtype_name(name)


def lane_of(jobtype: str) -> str:
    """The lane in which the daemon has the jobs of a type."""
    return lane(*pair(jobtype))


def jobtype_of(lane: str) -> str:
    return lane.replace(BETWEEN, "-", 1)


def told(callback: Callback, do: Callable[[], Found]) -> Found | None:
    """What `do` finds: returned, or told to the callback if there is one."""
    if callback is None:
        return do()
    try:
        found = do()
    except Exception as error:
        callback(error, None)
        return None
    callback(None, found)
    return found
