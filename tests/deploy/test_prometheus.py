"""A real Prometheus (Debian: `apt install prometheus`): it reads the alert rules, scrapes `hipq serve` with a token for
metrics, and evaluates every query of the board. Grafana itself is not tried: it cannot be installed from Debian."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from hipq.daemon.tenancy.tokens import ALL_TENANTS
from tests.daemon.api_serving import Site, eventually
from tests.ending import at_the_end

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = Path(__file__).with_name("alerts_test.yml")
pytestmark = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")), reason="prometheus is not installed"
)


def promtool(folder: Path, *words: str) -> str:
    ran = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    for file in (DEPLOY / "alerts.yml", UNIT):
        shutil.copy(file, tmp_path)
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    assert f"{len(group['rules'])} rules found" in promtool(tmp_path, "check", "rules", "alerts.yml")
    promtool(tmp_path, "test", "rules", UNIT.name)
    tried = {
        rule["alertname"] for test in yaml.safe_load(UNIT.read_text())["tests"] for rule in test["alert_rule_test"]
        if rule.get("exp_alerts")
    }  # fmt: skip
    assert tried == {rule["alert"] for rule in group["rules"]}


class Prometheus:
    """A server that scrapes one target, and is asked over HTTP."""

    def __init__(self, folder: Path, target: str, token: str) -> None:
        (folder / "token").write_text(token)
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(DEPLOY / "alerts.yml")],
            "scrape_configs": [{
                "job_name": "hipq", "authorization": {"credentials_file": str(folder / "token")},
                "static_configs": [{"targets": [target]}],
            }],
        }))  # fmt: skip
        promtool(folder, "check", "config", "prometheus.yml")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._log = (folder / "prometheus.log").open("wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self._address}"], stdout=self._log, stderr=self._log,
        )  # fmt: skip
        at_the_end(self.close)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    def ask(self, path: str, **query: str) -> Any:
        """What is in its reply; None while it is not ready yet."""
        try:
            url = f"http://{self._address}/api/v1/{path}?{urlencode(query)}"
            with urllib.request.urlopen(url, timeout=30) as reply:
                found = json.load(reply)
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError((query, error.read())) from None
        except OSError:
            return None
        assert found["status"] == "success", found
        assert not found.get("warnings"), found
        return found["data"]

    def value(self, query: str) -> float | None:
        found = self.ask("query", query=query)
        return float(found["result"][0]["value"][1]) if found and found["result"] else None


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    site = Site(f"sqlite:///{folder}/daemon.db", folder)
    daemon = site.daemon()
    acme = site.tenant(daemon)
    acme.handler("mail", "return payload")
    for job_id in acme.add("mail", b"1\n2\n3"):
        acme.ended(job_id)
    server = Prometheus(
        folder, f"127.0.0.1:{daemon.port}", site.tenants.token(ALL_TENANTS, "prometheus", ["metrics"])[1]
    )
    eventually(lambda: server.value("up"))
    acme.ended(acme.add("mail", b"4")[0])  # what is counted begins with the first look
    yield server
    server.close()
    site.close()


def test_it_scrapes_a_daemon_with_a_token_for_metrics(scraped: Prometheus) -> None:
    (target,) = scraped.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert eventually(lambda: scraped.value('sum(hipq_jobs_ended_total{code="ok",type="mail"})')) >= 1
    assert scraped.value("hipq_store_up") == 1
    assert scraped.value('hipq_health{status="ok"}') == 1
    rules = scraped.ask("rules")["groups"][0]["rules"]
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} <= {("ok", ""), ("unknown", "")}


def test_every_query_of_the_board_is_evaluated(scraped: Prometheus) -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    (variable,) = re.findall(r"label_values\((\w+), (\w+)\)", board["templating"]["list"][1]["query"])
    values = scraped.ask(f"label/{variable[1]}/values", **{"match[]": variable[0]})
    assert values == ["jobs"]
    eventually(lambda: scraped.value("sum(rate(hipq_http_requests_total[1m]))") is not None)  # a rate takes two looks
    told = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$queue", "|".join(values)).replace("$__rate_interval", "1m")
            assert "$" not in expression
            if scraped.ask("query", query=expression)["result"]:
                told.add(panel["title"])
    assert {"Engines", "Daemons: journal", "Daemons: requests", "Memory", "Daemons: contexts"} <= told, told
