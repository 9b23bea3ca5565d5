"""`hipq signing`: keys are listed, added and dropped, and none of their secrets is shown."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from hipq import Hipq
from hipq.callback.signing import Forbidden
from hipq.cli.main import cli
from hipq.cli.signing import signing
from tests.cli.conftest import HipqCommand


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.commands, "signing", signing)


@pytest.fixture
def token(program: Hipq) -> Callable[[], str]:
    row = program.store.get(program.queues[0].enqueue("charge"))
    assert row
    return lambda: program.signer.sign(row, 1 << 52)


def test_keys_are_listed_without_their_secrets(
    hipq: HipqCommand, where: list[str], program: Hipq, token: Callable[[], str]
) -> None:
    token()
    (key,) = program.signer.keys()
    (row,) = hipq("signing", "list", *where, "--json").json
    assert (row["app"], row["key"], row["use"]) == ("shop", key.id, "signs")
    ran = hipq("signing", "list", *where)
    assert re.search(rf"^shop +{key.id} +\S.* signs$", ran.out, flags=re.MULTILINE)
    (secret,) = re.findall(r'"secret":"([^"]+)"', program.store.notes("signing")["shop"])
    assert secret not in ran.out + ran.err + str(row)


def test_a_key_is_added_and_the_third_drops_the_first(
    hipq: HipqCommand, where: list[str], program: Hipq, token: Callable[[], str]
) -> None:
    signed = token()
    (first,) = program.signer.keys()
    ran = hipq("signing", "rotate", *where)
    assert ran.status == 0, "it ends no URL, so it does not ask"
    (second,) = re.findall("key ([0-9a-f]{8}) signs a minute from now", ran.out)
    assert [row["use"] for row in hipq("signing", "list", *where, "--json").json] == ["signs", "signs soon"]
    assert program.signer.read(signed)
    ran = hipq("signing", "rotate", *where)
    assert ran.status == 2
    assert f"This drops the key {first.id}" in ran.complaint
    assert "say --yes" in ran.complaint
    assert len(program.signer.keys()) == 2
    done = hipq("signing", "rotate", *where, "--yes", "--json").json
    assert done["dropped"] == [first.id]
    assert [row["key"] for row in hipq("signing", "list", *where, "--json").json] == [second, done["key"]]
    program.signer.keys()
    with pytest.raises(Forbidden):
        program.signer.read(signed)


def test_a_key_is_dropped_if_that_is_meant(
    hipq: HipqCommand, where: list[str], program: Hipq, token: Callable[[], str]
) -> None:
    signed = token()
    (key,) = program.signer.keys()
    ran = hipq("signing", "drop", *where, key.id)
    assert ran.status == 2
    assert "say --yes" in ran.complaint
    assert hipq("signing", "drop", *where, key.id, "--yes").out == f"dropped key {key.id}\n"
    program.signer.keys()
    with pytest.raises(Forbidden):
        program.signer.read(signed)
    ran = hipq("signing", "drop", *where, key.id, "--yes", "--json")
    assert ran.status == 1
    assert ran.complaint.startswith(f"hipq: there is no signing key '{key.id}'")


def test_of_a_database_with_several_instances_one_must_be_named(hipq: HipqCommand, url: str, program: Hipq) -> None:
    _ = [queue.number for queue in program.queues]
    bank = Hipq("bank", url)
    _ = bank.queue("accounts").number
    (key,) = bank.signer.keys()
    ran = hipq("signing", "rotate", "--db", url)
    assert ran.status == 2
    assert "several instances" in ran.complaint
    assert hipq("signing", "rotate", "shop:app").status == 0
    assert hipq("signing", "drop", "--db", url, key.id, "--yes", "--json").json == {"app": "bank", "dropped": [key.id]}
    bank.close()


@pytest.mark.parametrize("command", ["", "list", "rotate", "drop"])
def test_help_has_examples(hipq: HipqCommand, command: str) -> None:
    ran = hipq("signing", *filter(None, [command]), "--help")
    assert ran.status == 0
    assert f"hipq signing {command}" in ran.out
