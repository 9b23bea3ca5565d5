"""CloudEvents as answers: what a listener makes of them, and those that the project's own SDK sends through servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiormq
import nats
import pytest
from cloudevents.core.bindings import amqp, http, kafka, rabbitmq
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Producer
from pamqp.commands import Basic

from hipq import Hipq, JobType, Wait, transports
from hipq.errors import HipqError
from hipq.transports.address import address
from hipq.transports.kafka_client import settings
from tests.answers.test_listening import Script, charge, message, play, script, waiting
from tests.brokers.amqp import amqp_url
from tests.brokers.kafka import fresh_topic, is_mock, with_options
from tests.brokers.mqtt import mqtt_url
from tests.brokers.nats import nats_url
from tests.brokers.redis import redis_url
from tests.transports.test_amqp import ask as ask_amqp
from tests.transports.test_kafka import QUICK
from tests.transports.test_mqtt import properties, raw
from tests.transports.test_nats import ask as ask_nats
from tests.transports.test_nats import delete_streams

__all__ = ["charge", "script"]

URL = "redis://nowhere:1/answers"


def event(number: int = 1, subject: str | None = "order 17", data: Any = None, **more: Any) -> dict[str, Any]:
    about = {"specversion": "1.0", "id": f"e-{number}", "source": "/bank", "type": "com.bank.paid", **more}
    return {**about, **({"subject": subject} if subject else {}), "data": data or {"ref": "order 17", "n": number}}


def structured(*arguments: Any, **more: Any) -> bytes:
    return json.dumps(event(*arguments, **more)).encode()


def binary(body: bytes, **attributes: str) -> dict[str, Any]:
    about = {"specversion": "1.0", "id": "e-1", "source": "/bank", "type": "paid", **attributes}
    return {"body": body, "headers": {f"ce_{name}": value for name, value in about.items()}}


# -- what is read ----------------------------------------------------------------------------------------------------
def test_the_subject_is_the_key_and_the_data_is_the_answer(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    first, second = waiting(app, charge, "order 17", "order-18")
    sent = binary(b'{"n": 2}', subject="order-18", id="e-2")
    play(app, script, [message(structured()), message(**sent, job_id="m2", key="a partition key")])
    assert [app.job(first).result, app.job(second).result] == [{"ref": "order 17", "n": 1}, {"n": 2}]
    assert {one.answer_id for one in app.answers.list()} == {"/bank e-1", "/bank e-2"}


def test_the_same_event_in_another_message_is_a_duplicate(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    waiting(app, charge, "order 17")
    play(app, script, [message(structured(), f"m{number}") for number in (1, 2)], [message(structured(), "m3")])
    (kept,) = app.answers.list()
    assert kept.copies == 3
    long = {"source": "/" + "b" * 600}
    play(app, script, [message(structured(7, "x", **long), "m7"), message(structured(7, "x", **long), "m8")])
    (kept,) = app.answers.list(key="x")
    assert (kept.copies, len(kept.answer_id)) == (2, 64)


def test_fields_are_those_of_the_envelope_whichever_way_it_came(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge, key="data.ref", error="failed", answer_id="id", data="data.n")
    ids = waiting(app, charge, "order 17", "b")
    as_headers = message(**binary(b'{"ref": "b", "n": 7}', failed="false"), job_id="m2")
    play(app, script, [message(structured(1, "another")), as_headers])
    assert [app.job(job_id).result for job_id in ids] == [1, 7]
    assert {one.answer_id for one in app.answers.list()} == {"e-1"}


def test_functions_are_given_the_envelope(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge, key=lambda m: m.json["type"], data=lambda m: m.json["data"]["n"])
    (job_id,) = waiting(app, charge, "com.bank.paid")
    play(app, script, [message(structured())])
    assert app.job(job_id).result == 1


def test_hipq_s_own_headers_go_before_those_of_the_event(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    (job_id,) = waiting(app, charge, "mine")
    play(app, script, [message(structured(), headers={"hipq-key": "mine", "hipq-error": "true"})])
    app.run(until_empty=True)
    assert "order 17" in str(app.job(job_id).fault)


def test_without_a_subject_the_message_s_own_key_counts(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    (job_id,) = waiting(app, charge, "k")
    play(app, script, [message(structured(1, None), key="k")])
    assert app.job(job_id).result == {"ref": "order 17", "n": 1}


@pytest.mark.usefixtures("charge")
@pytest.mark.parametrize(
    ("options", "sent", "reason"),
    [
        ({}, message(structured(1, None)), "the CloudEvent has no subject, no hipq-key header and no key of its own"),
        ({"key": lambda _: "k"}, message(**binary(b"{", datacontenttype="text/json")), "the CloudEvent's data is not"),
        ({"key": lambda _: "k"}, message(structured(specversion="0.3")), "the CloudEvent is of version '0.3'"),
        (
            {"key": lambda _: "k", "data": lambda m: m.text, "answer_id": lambda m: m.id},
            message(b"[]", headers={"Content-Type": "application/cloudevents-batch+json"}),
            "'application/cloudevents-batch+json' is not understood: send CloudEvents one by one",
        ),
        ({"key": "ref"}, message(structured()), "key: the message has no field ref"),
    ],
)  # fmt: skip
def test_a_bad_event_is_kept_as_unreadable_and_stops_nothing(
    app: Hipq, script: Script, options: dict[str, Any], sent: Any, reason: str
) -> None:
    app.listen(URL, to=("orders", "charge"), **options)
    good = message('{"ref": "k"}', "m2", headers={"hipq-key": "k"})
    play(app, script, [sent, good])
    assert script.acknowledged == ["m1", "m2"]
    kept, fine = app.answers.list()
    assert (kept.state, fine.state) == ("unreadable", "buffered")
    assert reason in kept.note


# -- through real servers --------------------------------------------------------------------------------------------
Publish = Callable[[CloudEvent, str], None]
"""Sends an event in one of the two modes."""


@contextmanager
def kafka_topic() -> Iterator[tuple[str, Publish]]:
    with fresh_topic() as url:
        out = Producer({**settings(address(url)), "log_level": 0})

        def publish(one: CloudEvent, mode: str) -> None:
            record = getattr(kafka, f"to_{mode}_event")(one)
            out.produce(address(url).name, record.value, record.key, headers=dict(record.headers))
            assert out.flush(10) == 0

        yield with_options(url, QUICK) if is_mock(url) else url, publish


@contextmanager
def nats_subject() -> Iterator[tuple[str, Publish]]:
    word = f"hipq-test-{uuid4().hex[:12]}"

    def publish(one: CloudEvent, mode: str) -> None:
        posted = getattr(http, f"to_{mode}_event")(one)  # the SDK has no NATS: its headers are those of HTTP, but one
        headers = {name.replace("content-type", "ce-datacontenttype"): text for name, text in posted.headers.items()}
        given = headers if mode == "binary" else None
        ask_nats(nats_url(), lambda js: js.publish(f"{word}.in", posted.body, headers=given))

    yield f"{nats_url()}/{word}.in", publish
    delete_streams(word)


@contextmanager
def amqp_queue(binding: str) -> Iterator[tuple[str, Publish]]:
    queue = f"hipq-test-{uuid4().hex[:12]}"

    def publish(one: CloudEvent, mode: str) -> None:
        if binding == "amqp":
            found = getattr(amqp, f"to_{mode}_event")(one)
            kind, headers, body = found.properties["content-type"], found.application_properties, found.application_data
        else:
            put = getattr(rabbitmq, f"to_{mode}_event")(one)
            kind, headers, body = put.content_type, put.headers, put.body
        about = Basic.Properties(content_type=kind, headers=dict(headers))

        async def put_there(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
            await channel.queue_declare(queue, passive=True)
            await channel.basic_publish(body, routing_key=queue, properties=about)

        ask_amqp(amqp_url(), put_there)

    async def delete(_: Any, channel: aiormq.abc.AbstractChannel) -> None:
        await channel.queue_delete(queue)

    yield f"{amqp_url()}/{queue}", publish
    ask_amqp(amqp_url(), delete)


@contextmanager
def mqtt_topic() -> Iterator[tuple[str, Publish]]:
    topic = f"hipq-test/{uuid4().hex}"

    def publish(one: CloudEvent, mode: str) -> None:
        posted = getattr(http, f"to_{mode}_event")(one)
        pairs = [(name, str(value)) for name, value in one.get_attributes().items() if name != "datacontenttype"]
        about = properties(ContentType=posted.headers["content-type"])
        if mode == "binary":
            about.UserProperty = pairs
        with raw(mqtt_url()) as client:
            client.publish(topic, posted.body, 1, properties=about).wait_for_publish(5)

    yield f"{mqtt_url()}/{topic}?expiry=60", publish


@contextmanager
def redis_stream() -> Iterator[tuple[str, Publish]]:
    url = f"{redis_url()}/hipq-test-{uuid4().hex[:12]}"

    def publish(one: CloudEvent, mode: str) -> None:
        posted = getattr(http, f"to_{mode}_event")(one)
        headers = {name.replace("ce-", "ce_"): str(one.get_attributes()[name[3:]]) for name in posted.headers
                   if name.startswith("ce-")}  # fmt: skip
        transports.send(url, posted.body, headers=headers)

    yield url, publish


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    "system",
    [kafka_topic, nats_subject, partial(amqp_queue, "amqp"), partial(amqp_queue, "rabbitmq"), mqtt_topic, redis_stream],
    ids=["kafka", "nats", "amqp", "rabbitmq", "mqtt", "redis"],
)
def test_an_event_on_a_real_server_answers_its_job(tmp_path: Path, system: Any, mode: str) -> None:
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db")
    charge = app.queue("orders").job("charge")(lambda _: Wait())
    key, source = "50% of ünï 17", "https://bank.example/a%20b"
    about = {"id": "e-1", "type": "paid", "source": source, "subject": key, "datacontenttype": "application/json"}
    with system() as (url, publish):
        app.listen(url, to=charge)
        (job_id,) = waiting(app, charge, key)
        with app.streams.listening():
            until = time.monotonic() + 60
            while app.job(job_id).state != "final" and time.monotonic() < until:
                with suppress(HipqError, nats.errors.Error, aiormq.exceptions.AMQPError):  # nobody listens there yet
                    publish(CloudEvent(about, {"receipt": 9}), mode)
                time.sleep(0.1)
    assert app.job(job_id).result == {"receipt": 9}
    assert {one.answer_id for one in app.answers.list()} == {f"{source} e-1"}, "the others were duplicates"
    app.close()
