"""Amazon Kinesis: `kinesis://STREAM?region=eu-west-1`.

A record has a body and a partition key, nothing else: the key of the job travels as the partition key, and an answer
must carry it there or in its body. Headers that name the job or its trace are left out; others are refused.

Which source of a group reads which shard, and how far, is kept in hipq's database: see `kinesis_shares`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from hipq.transports import aws
from hipq.transports.address import Address
from hipq.transports.base import ATTEMPT_HEADER, JOB_HEADER, KEY_HEADER, Checkpoints, Message, Outgoing
from hipq.transports.kinesis_shares import Shard, ShardShares

FULL_PAUSE: Final = 1.0
"""Seconds until a shard is read again after Kinesis's limit for it was exceeded."""

_STREAM: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_LEFT_OUT: Final = frozenset({KEY_HEADER, JOB_HEADER, ATTEMPT_HEADER, "traceparent", "tracestate"})
_FULL: Final = frozenset({"ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException"})


def check(address: Address) -> None:
    rule = "the name of a stream has up to 128 letters, digits, dots, - and _"
    aws.check(address, frozenset({"start"}), _STREAM, rule)
    if address.options.get("start", "oldest") not in ("oldest", "latest"):
        raise address.invalid(f"start must be oldest or latest, not {address.options['start']!r:.40}")


class KinesisSender(aws.AwsSender):
    def send(self, message: Outgoing, seconds: float) -> None:
        for name in message.headers:  # a header that marks an error must not get lost
            if name.lower() not in _LEFT_OUT:
                raise self._address.invalid(f"Kinesis has no headers; put what {name!r:.60} says into the body")
        if len(message.key) > 256:
            raise self._address.invalid(f"Kinesis takes keys of 256 characters, and this one has {len(message.key)}")
        key = message.key or uuid4().hex  # any shard will do
        with aws.errors(self._address):
            client = self._within(seconds)
            client.put_record(StreamName=self._address.name, Data=message.body, PartitionKey=key)


class KinesisSource(aws.AwsSource):
    def __init__(self, address: Address, _group: str, checkpoints: Checkpoints) -> None:
        super().__init__(address, 16)
        self._shares = ShardShares(checkpoints, from_now=address.options.get("start") == "latest")
        self._held = 0
        """Messages that were received and not acknowledged yet."""

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        until = time.monotonic() + seconds
        while True:
            if time.monotonic() >= self._shares.look_at:
                self._shares.look(*self._listed())
            room = most - self._held
            if found := self._read(room):
                self._held += len(found)
                return found
            now = time.monotonic()
            if now >= until:
                return []
            due = [shard.due for shard in self._shares.mine.values() if not shard.is_ended and room > 0]
            time.sleep(max(0.0, min([until, self._shares.look_at, *due]) - now))

    def done(self, messages: Sequence[Message]) -> None:
        self._held -= len(messages)
        for shard_id, sequence in dict(message.handle for message in messages).items():
            if shard := self._shares.mine.get(shard_id):  # otherwise another source has it now and reads these again
                shard.kept = sequence
                self._shares.keep(shard)

    def lag(self) -> int | None:
        """0 or None: Kinesis says how old the next record is, not how many there are."""
        mine = self._shares.mine.values()
        return 0 if mine and all(shard.behind == 0 and shard.kept == shard.read for shard in mine) else None

    def close(self) -> None:
        self._shares.leave()
        super().close()

    # -- reading ----------------------------------------------------------------------------------------------------
    def _read(self, most: int) -> list[Message]:
        """Read the shards that are due in parallel, each for its part of `most`."""
        now = time.monotonic()
        due = [shard for shard in self._shares.mine.values() if shard.due <= now and not shard.is_ended]
        due = sorted(due, key=lambda shard: shard.due)[: max(0, most)]
        limit = min(10_000, most // max(1, len(due)))
        found: list[Message] = []
        problem: Exception | None = None
        answers = [one.result() for one in self._each(lambda shard: self._records(shard, limit), due)]
        for shard, answer in zip(due, answers, strict=True):  # no shard goes on before all have answered
            if isinstance(answer, Exception):
                problem = self._failed(shard, answer) or problem
                continue
            shard.advance(answer, time.monotonic())
            found += [self._message(shard, record) for record in answer.get("Records", ())]
            if shard.is_ended:
                self._shares.keep(shard)
        # records already read must be returned: their shard will not return them again
        if problem is not None and not found:
            raise problem
        return found

    def _records(self, shard: Shard, limit: int) -> Any:
        """The shard's next records, or the error."""
        try:
            shard.iterator = shard.iterator or self._iterator(shard)
            return self._client.get_records(ShardIterator=shard.iterator, Limit=limit)
        except (ClientError, BotoCoreError) as error:
            return error

    def _iterator(self, shard: Shard) -> str:
        ask = partial(self._client.get_shard_iterator, StreamName=self._address.name, ShardId=shard.id)
        try:
            answer = ask(**shard.where())
        except ClientError as error:
            if aws.code(error) != "InvalidArgumentException" or not shard.read:
                raise
            answer = ask(ShardIteratorType="TRIM_HORIZON")  # the position is older than Kinesis's oldest record
        return str(answer["ShardIterator"])

    def _failed(self, shard: Shard, error: Exception) -> Exception | None:
        """Handle a shard's error; returns the error to raise if waiting does not mend it."""
        if aws.code(error) == "ExpiredIteratorException":
            shard.iterator = ""
            return None
        if aws.code(error) in _FULL:
            shard.due = time.monotonic() + FULL_PAUSE
            return None
        return aws.translated(self._address, error)

    def _message(self, shard: Shard, record: Mapping[str, Any]) -> Message:
        number, key = record["SequenceNumber"], record["PartitionKey"]
        name, stream = f"{shard.id}:{number}", self._address.name
        return Message(bytes(record["Data"]), name, key=key, subject=stream, handle=(shard.id, number))

    def _listed(self) -> tuple[dict[str, Any], float]:
        """The stream's shards by their ids, and the server's time."""
        with aws.errors(self._address):
            if self._client is None:
                self._client = aws.client(self._address, connect=5, read=10, attempts=2)
            answer = self._client.list_shards(StreamName=self._address.name)
            found = answer["Shards"]
            date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
            while token := answer.get("NextToken"):
                answer = self._client.list_shards(NextToken=token)
                found += answer["Shards"]
        return {one["ShardId"]: one for one in found}, parsedate_to_datetime(date).timestamp() if date else time.time()


sender, source = KinesisSender, KinesisSource
