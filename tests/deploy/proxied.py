"""A real nginx or haproxy with the file under deploy/proxy, in front of daemons at ports of a test."""

from __future__ import annotations

import http.client
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.daemon.api_serving import eventually
from tests.servers import free_port

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "proxy"
NGINX: Final = """
user root; daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/proxy.log;
events {{ worker_connections 512; }}
http {{
    access_log {folder}/access.log; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    include {folder}/hipq.conf;
}}
"""


class Proxy(NamedTuple):
    port: int

    def connect(self) -> http.client.HTTPSConnection:
        unverified = ssl._create_unverified_context()  # it signs for itself
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=unverified)

    def call(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request(method, path, body or None, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@contextmanager
def proxied(kind: str, folder: Path, ports: Mapping[str, int]) -> Iterator[Proxy]:
    """`ports`: where in the file, and where here."""
    if not (program := shutil.which(kind)):
        pytest.skip(f"{kind} is not installed")
    own = free_port()
    certificate, key = _certificate(folder)
    text = next(FOLDER.glob(f"{kind}.*")).read_text()
    changes = {
        "listen 443 ssl": f"listen 127.0.0.1:{own} ssl", "bind :443": f"bind 127.0.0.1:{own}",
        "/etc/ssl/hipq-both.pem": f"{folder}/both.pem", "/etc/ssl/hipq.pem": certificate, "/etc/ssl/hipq.key": key,
        **{f"127.0.0.1:{there}": f"127.0.0.1:{here}" for there, here in ports.items()},
    }  # fmt: skip
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "hipq.conf").write_text(text)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    command = {"nginx": ["-c", f"{folder}/nginx.conf"], "haproxy": ["-db", "-f", f"{folder}/hipq.conf"]}[kind]
    process = subprocess.Popen([program, *command], stdout=subprocess.DEVNULL, stderr=(folder / "errors").open("wb"))
    try:
        eventually(lambda: process.poll() is not None or _listens(own))
        assert process.poll() is None, (folder / "errors").read_text()
        yield Proxy(own)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def others() -> Iterator[int]:
    """A server that says which path it was asked for, in the place of callbacks and of the dashboard."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{self.path} {self.headers['X-Forwarded-Proto']}".encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A test's output is for what fails."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def _certificate(folder: Path) -> tuple[str, str]:
    certificate, key = str(folder / "own.pem"), str(folder / "own.key")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=jobs.example"]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    (folder / "both.pem").write_text(Path(certificate).read_text() + Path(key).read_text())
    return certificate, key


def _listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False
