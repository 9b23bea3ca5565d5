"""The DynamoDB tables that keep messages which are due far ahead: finding, checking and creating them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from hipq.errors import HipqError, Invalid, WrongTable
from hipq.waiter.clients import AwsClients, AwsTarget, code, errors
from hipq.waiter.item import HASH, INDEX, RANGE, TIME
from hipq.waiter.limits import queue_name

AGAIN: Final = 30.0
"""Seconds after which a missing table is looked for again."""
READY: Final = 300.0
"""Seconds that DynamoDB may take to create a table."""

_NAME: Final = re.compile("[A-Za-z0-9_.-]{3,255}")
_MISSING: Final = "ResourceNotFoundException"

Projection = Literal["ALL", "KEYS_ONLY"]


@dataclass(frozen=True, slots=True)
class MessageTable:
    name: str
    local: bool
    """Whether the index is a local one: as consistent as the table, and counted into the size of its items."""
    whole: bool
    """Whether the index has copies of whole items."""


class MessageTables:
    """The tables of the queues. `shared` names one table for all queues; None: each queue has a table of its own
    name."""

    def __init__(self, clients: AwsClients, queues: tuple[str, ...], shared: str | None) -> None:
        self._clients, self._queues, self._shared = clients, queues, shared
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, MessageTable | None]] = {}
        if shared is not None:
            _table_name(shared)

    def name(self, queue: str) -> str:
        """The name of this queue's table, whether or not the table exists."""
        return self._shared or queue_name(queue)

    def making(self, queue: str) -> str:
        """The command that creates this queue's table."""
        return f"hipq waiter create-table {queue}" + (f" --table {self._shared}" if self._shared else "")

    def of(self, queue: str) -> MessageTable | None:
        """This queue's table, None if there is none; WrongTable if it cannot be used."""
        name = self.name(queue)
        with self._lock:
            seen, table = self._known.get(name, (-AGAIN, None))
        if table is not None or time.monotonic() - seen < AGAIN:
            return table
        return self._look(name)

    def find(self) -> dict[str, str]:
        """Look up all queues and return those with a usable table: queue -> the table's name."""
        found = {}
        for queue in self._queues:
            with suppress(WrongTable):  # `check` says what is wrong with it
                if table := self._look(self.name(queue)):
                    found[queue] = table.name
        return found

    def usable(self, problems: list[str]) -> Iterator[MessageTable]:
        """Look up and yield each usable table; for the others `problems` gets a sentence."""
        _ = self._clients.dynamodb  # a missing region is no table's fault: raise it here
        for name in dict.fromkeys(map(self.name, self._queues)):
            try:
                table = self._look(name)
            except HipqError as error:
                problems.append(str(error))
                continue
            if table is not None:
                yield table

    def check(self, queue: str) -> list[str]:
        """What is wrong with this queue's table, one sentence each; [] = nothing."""
        name = self.name(queue)
        description = self._described(name)
        if description is None:
            return [f"there is no table {name} in this account and region; `{self.making(queue)}` makes it"]
        return _wrong(description)

    def create(self, queue: str, projection: Projection = "ALL") -> str:
        """Create this queue's table, wait until it can be used, and return its name. A usable table that exists
        already is fine. `KEYS_ONLY` keeps no second copy of each message in the index, which halves the cost of
        large messages."""
        name = _table_name(self.name(queue))
        if projection not in ("ALL", "KEYS_ONLY"):
            raise Invalid(f'projection must be "ALL" or "KEYS_ONLY", not {projection!r}')
        try:
            with errors(AwsTarget("dynamodb", name)):
                self._clients.dynamodb.create_table(**_definition(name, projection))
        except HipqError as error:
            if code(error) != "ResourceInUseException":
                raise
        until = time.monotonic() + READY
        while (description := self._described(name)) is None or description["TableStatus"] == "CREATING":
            if time.monotonic() > until:
                raise WrongTable(f"table {name} is still being made after {READY:g} s; look at it in the AWS console")
            time.sleep(0.2)
        self.forget(name)
        self._look(name)
        return name

    def forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)

    def _look(self, name: str) -> MessageTable | None:
        description = self._described(name)
        table = None if description is None else _table(name, description)
        with self._lock:
            self._known[name] = time.monotonic(), table
        return table

    def _described(self, name: str) -> dict[str, Any] | None:
        try:
            with errors(AwsTarget("dynamodb", name)):
                found: dict[str, Any] = self._clients.dynamodb.describe_table(TableName=_table_name(name))["Table"]
                return found
        except HipqError as error:
            if code(error) == _MISSING:
                return None
            raise


def _table_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Invalid(
            f"DynamoDB has no tables named {name!r:.60}: 3 to 255 letters, digits, dots, - and _; "
            "give the waiter one table for all queues, table=…"
        )
    return name


def _table(name: str, description: dict[str, Any]) -> MessageTable | None:
    if description.get("TableStatus") in ("CREATING", "DELETING"):
        return None  # DynamoDB is creating or deleting the table
    if wrong := _wrong(description):
        raise WrongTable(f"table {name} cannot keep messages: {'; '.join(wrong)}")
    index, local = _index(description)
    assert index is not None
    return MessageTable(name, local, index.get("Projection", {}).get("ProjectionType") == "ALL")


def _index(description: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    for kind, local in (("LocalSecondaryIndexes", True), ("GlobalSecondaryIndexes", False)):
        for index in description.get(kind) or ():
            if index.get("IndexName") == INDEX:
                return index, local
    return None, False


def _wrong(description: dict[str, Any]) -> list[str]:
    """Everything that is wrong with the table, not only the first problem."""
    types = {one["AttributeName"]: one["AttributeType"] for one in description.get("AttributeDefinitions", ())}
    found = _keys("its", description.get("KeySchema", ()), types, {"HASH": (HASH, "S"), "RANGE": (RANGE, "S")})
    index, _ = _index(description)
    if index is None:
        others = [one["IndexName"] for kind in ("Local", "Global")
                  for one in description.get(f"{kind}SecondaryIndexes") or ()]  # fmt: skip
        has = f"it has {', '.join(others)}" if others else "it has none"
        return [*found, f"it needs an index named {INDEX}, and {has}"]
    return [
        *found,
        *_keys(f"the index {INDEX}'s", index.get("KeySchema", ()), types, {"HASH": (HASH, "S"), "RANGE": (TIME, "N")}),
        *_unready(index),
    ]


def _unready(index: dict[str, Any]) -> list[str]:
    status = index.get("IndexStatus", "ACTIVE")
    return [] if status in ("ACTIVE", "UPDATING") else [f"the index {INDEX} is {status}: wait until it is ACTIVE"]


def _keys(whose: str, schema: Any, types: dict[str, str], wanted: dict[str, tuple[str, str]]) -> list[str]:
    has = {one["KeyType"]: one["AttributeName"] for one in schema}
    wrong = []
    for kind, (name, key_type) in wanted.items():
        if kind not in has:
            wrong.append(f"{whose} {kind} key must be {name} ({key_type}), and there is none")
        elif has[kind] != name:
            wrong.append(f"{whose} {kind} key must be {name} ({key_type}), not {has[kind]}")
        elif types.get(name) != key_type:
            wrong.append(f"{whose} {kind} key {name} must be of the type {key_type}, not {types.get(name)}")
    return wrong


def _definition(name: str, projection: Projection) -> dict[str, Any]:
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": HASH, "AttributeType": "S"},
            {"AttributeName": RANGE, "AttributeType": "S"},
            {"AttributeName": TIME, "AttributeType": "N"},
        ],
        "KeySchema": [{"AttributeName": HASH, "KeyType": "HASH"}, {"AttributeName": RANGE, "KeyType": "RANGE"}],
        "LocalSecondaryIndexes": [
            {
                "IndexName": INDEX,
                "KeySchema": [{"AttributeName": HASH, "KeyType": "HASH"}, {"AttributeName": TIME, "KeyType": "RANGE"}],
                "Projection": {"ProjectionType": projection},
            }
        ],
    }
