"""PerTenant: a limit over all lanes of one tenant."""

from __future__ import annotations

import msgspec
import pytest

from hipq.limits.admission import Admission
from hipq.limits.base import Usage
from hipq.limits.rules import Rules, load, refusal
from hipq.limits.tenants import PerTenant, tenant_of

LIMIT = PerTenant({"acme": 3, "a.b": 1})


@pytest.mark.parametrize(("lane", "tenant"), [("acme/x", "acme"), ("acme/x/y", "acme"), ("acme", "acme"), ("", "")])
def test_a_lane_belongs_to_who_is_named_before_the_first_slash(lane: str, tenant: str) -> None:
    assert tenant_of(lane) == tenant


def test_all_lanes_of_a_tenant_share_one_pool() -> None:
    held = {"acme/x": 1500, "acme/y": 500, "acmes/x": 7000, "a.b/x": 1000}
    pool = LIMIT.pool("acme/z", Usage(held, {}, 0, 1))
    assert (pool.cap, pool.used) == (3000, 2000)
    admission = Admission(Rules(limits=(LIMIT,)), (), held, "{}", 1)
    assert admission.admits("t", "acme/x", 1000, ("1", 1))
    assert not admission.admits("t", "acme/z", 1000, ("1", 2))
    assert admission.refused
    assert not admission.admits("t", "a.b/y", 1000, ("1", 3))
    assert admission.admits("t", "acmes/y", 1000, ("1", 4)), "who has no limit is not held up"


def test_it_is_kept_in_the_store_and_can_be_read_by_people() -> None:
    rules = Rules(limits=(LIMIT,))
    assert load(msgspec.json.encode(rules).decode()) == rules
    assert str(LIMIT) == "tenants a.b 1, acme 3"
    assert msgspec.json.decode(msgspec.json.encode(LIMIT), type=PerTenant) == LIMIT


def test_a_job_heavier_than_its_tenant_may_is_refused() -> None:
    rules = Rules(limits=(LIMIT,))
    assert "tenant" in refusal(rules, "acme/x", 4000)
    assert refusal(rules, "acme/x", 3000) == ""
    assert refusal(rules, "other/x", 100_000) == ""
