"""The OpenAPI page: made from the table that requests are served from; and schemathesis finds nothing that breaks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon.http.api import ADD, ROUTES
from hipq.daemon.http.routes_table import PATH, Route
from tests.daemon.api_serving import Tenant, site


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    got = site().tenant()("GET", "/openapi.json")
    assert got.status == 200
    return dict(got.json)


def test_every_route_is_described_and_nothing_else_is(description: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, methods in description["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}
    ids = [one["operationId"] for methods in description["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_that_is_described_is_served(route: Route, description: dict[str, Any]) -> None:
    """Without a token each that needs one says so: a path that nobody serves would be 404."""
    path = re.sub(r"\{(\w+)\}", lambda match: "1" if match[1] == "id" else "x", route.path)
    got = site().daemons[0].call(route.method, path)
    assert got.status == (200 if route.who == "anybody" else 401)
    operation = description["paths"][route.path][route.method.lower()]
    named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
    assert named == set(re.findall(r"\{(\w+)\}", route.path)) <= set(PATH)
    assert {str(one.status) for one in route.gives} <= set(operation["responses"])
    assert operation["summary"].endswith(".")


def test_the_way_that_is_taken_first_is_in_the_table() -> None:
    assert (ADD.method, ADD.path) == ("POST", "/{client}/job/{type}/add")


def test_it_is_openapi_that_others_can_read(description: dict[str, Any]) -> None:
    from openapi_schema_validator import OAS31Validator
    from openapi_spec_validator import OpenAPIV31SpecValidator

    assert description["openapi"] == "3.1.0"
    assert [str(error) for error in OpenAPIV31SpecValidator(description).iter_errors()] == []
    for schema in description["components"]["schemas"].values():
        OAS31Validator.check_schema(schema)
    text = json.dumps(description)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in description["components"]["schemas"]


def test_every_reply_in_json_says_what_is_in_it(description: dict[str, Any]) -> None:
    def is_typed(schema: dict[str, Any]) -> bool:
        return bool(schema.get("$ref") or schema.get("properties")) or all(map(is_typed, schema.get("anyOf", [{}])))

    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            for status, reply in operation["responses"].items():
                if "application/json" in reply["content"]:
                    assert is_typed(reply["content"]["application/json"]["schema"]), (method, path, status)


def test_the_page_for_people_has_every_route_and_takes_nothing_from_elsewhere() -> None:
    got = site().daemons[0].call("GET", "/docs")
    assert got.status == 200, "a browser has no token to send"
    page, policy = got.body.decode(), got.headers["content-security-policy"]
    for route in ROUTES:
        assert f'data-method="{route.method}" data-path="{route.path}"' in page
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for part, name in (("style", "style"), ("script", "script")):
        (text,) = re.findall(rf"<{part}>(.*?)</{part}>", page, flags=re.DOTALL)
        assert f"{name}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy


def schemathesis(tenant: Tenant, folder: Path, examples: int, *more: str) -> None:
    """It calls every route with what the page says is right, and with what it says is wrong."""
    (folder / "schemathesis.toml").write_text(
        f'[parameters]\nclient = "{tenant.name}"\nwait = 0\n'
        '[[operations]]\ninclude-path = "/v1/{client}/events"\nenabled = false\n'
        # These take what PUT /v1/{client}/handlers/{type} takes: hundreds of handlers, of which each is parsed or run.
        + "".join(
            f'[[operations]]\ninclude-path = "{path}"\nphases.coverage.enabled = false\n'
            for path in (
                "/{client}/handler/add/{type}",
                "/{client}/handler/add/{type}/add",
                "/v1/{client}/handlers/{type}/test",
            )
        )
    )
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{tenant.daemon.address}/openapi.json",
        "--header", f"Authorization: Bearer {tenant.token}", "--max-examples", str(examples), "--no-color",
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--request-timeout", "30", "--generation-database", "none", *more,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Traceback" not in tenant.daemon.log


def test_schemathesis_finds_nothing_that_breaks(tmp_path: Path) -> None:
    schemathesis(site().tenant(), tmp_path, 3, "--phases", "examples,coverage,fuzzing", "--seed", "1")


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_schemathesis_finds_nothing_that_breaks_in_minutes(tmp_path: Path, store: str) -> None:
    schemathesis(site(store).tenant(), tmp_path, 200)
