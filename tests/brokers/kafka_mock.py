"""librdkafka's mock cluster, by its C functions. Run as a program this is one, told over a pipe what to do.

It is three brokers that speak Kafka's protocol over TCP, groups and idempotent producers included, and keep everything
in memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import confluent_kafka

BROKERS: Final = (1, 2, 3)


def library_file() -> Path | None:
    """The librdkafka that confluent-kafka brought."""
    package = Path(confluent_kafka.__file__).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*")]
    return found[0] if found else None


def send_with_header(settings: Mapping[str, str], topic: str, name: bytes, body: bytes) -> None:
    """Send a message that has a header with this name, which confluent-kafka sends only if it is text."""
    library = _loaded()
    configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
    for setting, value in {**settings, "log_level": "0"}.items():
        library.rd_kafka_conf_set(configuration, setting.encode(), value.encode(), None, ctypes.c_size_t(0))
    handle = ctypes.c_void_p(library.rd_kafka_new(0, configuration, None, ctypes.c_size_t(0)))
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(1)))
    library.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(-1), b"x", ctypes.c_ssize_t(1))
    parts = (1, topic.encode(), 4, body, ctypes.c_size_t(len(body)), 7, 2, 10, headers, 0)  # RD_KAFKA_VTYPE_...
    assert library.rd_kafka_producev(handle, *parts) == 0
    assert library.rd_kafka_flush(handle, 10_000) == 0
    library.rd_kafka_destroy(handle)


def _loaded() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_file()))
    for name in ("conf_new", "new", "headers_new", "mock_cluster_new"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


def _serve() -> None:
    """Say the addresses; then for each line call rd_kafka_mock_<word>(cluster, ...), and say what that said."""
    library = _loaded()
    configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
    handle = ctypes.c_void_p(library.rd_kafka_new(0, configuration, None, ctypes.c_size_t(0)))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(handle, len(BROKERS)))
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 50)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        arguments = [int(word) if word.isdigit() else ctypes.c_char_p(word.encode()) for word in words]
        print(getattr(library, f"rd_kafka_mock_{command}")(cluster, *arguments) or 0, flush=True)


if __name__ == "__main__":
    _serve()
