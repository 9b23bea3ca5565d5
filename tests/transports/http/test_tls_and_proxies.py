"""Servers with certificates, and servers behind a proxy."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hipq.errors import Invalid
from hipq.transports import http
from tests.transports.http.servers import SECRETS, Web, raw, read_request, refused, web


# -- TLS ---------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hipq's test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(plain + made.public_bytes(serialization.Encoding.PEM))
    return file


@contextmanager
def secure(certificate: Path) -> Iterator[Web]:
    with web() as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        server.url = f"https://127.0.0.1:{server.server_port}"
        yield server


def test_a_certificate_that_is_trusted_will_do(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with secure(certificate) as server:
        for _ in range(3):
            assert http.request("POST", f"{server.url}/a", b"x" * 300_000).body == b"ok " + b"x" * 300_000
        assert server.connections == 1
        other = server.url.replace("127.0.0.1", "localhost")
        assert "its certificate is not accepted (Hostname mismatch" in refused(other)


def test_a_certificate_that_is_not_trusted_is_refused(certificate: Path) -> None:
    with secure(certificate) as server:
        sentence = refused(f"https://{SECRETS.format(server.url[8:])}")
        assert sentence.startswith(f"{server.url}: its certificate is not accepted (self-signed certificate")
        assert server.got == []


def test_https_to_a_server_that_has_none_says_so() -> None:
    with raw(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        sentence = refused(f"https://{SECRETS.format(server.host)}")
        assert sentence.startswith(f"https://{server.host}: a secure connection failed (")


# -- proxies -----------------------------------------------------------------------------------------------------------
def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with web() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("//", "//me:hush@"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        reply = http.request("GET", "http://no-such-host.invalid/a?b")
        assert reply.status == 200
        (_, path, headers, _) = proxy.got[0]
        assert path == "http://no-such-host.invalid/a?b"
        assert headers["proxy-authorization"] == "Basic bWU6aHVzaA=="
        assert http.request("GET", f"{proxy.url}/direct").status == 200
        assert proxy.got[1][1] == "/direct"
        assert "proxy-authorization" not in proxy.got[1][2]


def test_https_goes_through_a_tunnel(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        asked.append(read_request(connection))
        with socket.create_connection(("127.0.0.1", server.server_port)) as other:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(other, connection), daemon=True)
            back.start()
            pump(connection, other)

    def pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with secure(certificate) as server, raw(serve) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        for _ in range(2):
            assert http.request("POST", f"{server.url}/hush", b"x").body == b"ok x"
        assert len(asked) == 1
        assert asked[0].startswith(f"CONNECT {server.url[8:]} HTTP/1.1".encode())
        assert b"hush" not in asked[0]
        server.pause = 1.0
        assert "no complete reply within 0.3 s" in refused(server.url, 0.3)


def test_a_proxy_that_refuses_or_is_not_there_is_named_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as proxy:
        monkeypatch.setenv("https_proxy", proxy.host)
        sentence = refused(f"https://{SECRETS.format('shop.invalid')}")
    assert sentence == "https://shop.invalid (through a proxy): the proxy refused (407 Proxy Authentication Required)"
    assert refused("https://shop.invalid") == (
        "https://shop.invalid (through a proxy): nobody listens there (connection refused)"
    )
    monkeypatch.setenv("https_proxy", "socks5://hush")
    monkeypatch.setattr(http, "_proxies", None)
    monkeypatch.setattr(http, "find_spec", lambda _: None)
    with pytest.raises(Invalid, match="needs socksio: pip install"):
        http.request("GET", "https://shop.invalid")
    monkeypatch.setenv("https_proxy", "gopher://hush")
    monkeypatch.setattr(http, "_proxies", None)
    with pytest.raises(Invalid, match="is no URL of a proxy") as error:
        http.request("GET", "https://shop.invalid")
    assert "hush" not in "".join(traceback.format_exception(error.value))
