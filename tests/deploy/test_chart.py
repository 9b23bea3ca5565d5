"""The Helm chart: rendered by helm, validated by kubeconform or kubernetes-validate; and the query of its scaler."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import yaml

from hipq import Hipq, Wait
from tests.servers import clean_database

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "hipq"
EVERYTHING: Final = (
    "keda.enabled=true", "keda.tables={shop_orders,shop_mails}", "listener.enabled=true", "callbacks.enabled=true",
    "callbacks.url=https://jobs.example/hipq", "daemon.enabled=true", "daemon.sandbox=true", "worker.queues=orders",
)  # fmt: skip


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    if not (program := shutil.which("helm")):
        pytest.skip("helm is not installed")
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


def rendered(*settings: str) -> list[dict[str, Any]]:
    done = helm("template", "shop", str(CHART), *(word for one in settings for word in ("--set", one)))
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def pods(resources: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in resources if "template" in one["spec"]}


def test_it_says_which_versions_it_is_and_has_no_host_of_others() -> None:
    from hipq.version import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"] == "hipq"


def test_helm_finds_nothing() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_alone_it_is_workers_and_a_migration_before_them() -> None:
    kinds = sorted(one["kind"] for one in rendered())
    assert kinds == ["Deployment", "Job", "PodDisruptionBudget"]


def test_no_pod_is_root_or_writes_to_its_image() -> None:
    everything = pods(rendered(*EVERYTHING))
    assert set(everything) == {f"shop-{name}" for name in ("worker", "listener", "callbacks", "daemon", "migrate")}
    for name, pod in everything.items():
        assert pod["securityContext"]["runAsNonRoot"], name
        assert not pod["automountServiceAccountToken"], name
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert (security["readOnlyRootFilesystem"], security["capabilities"]) == (True, {"drop": ["ALL"]}), name
        assert "memory" in container["resources"]["limits"], name


def test_a_pod_outlives_the_time_its_handlers_get() -> None:
    worker = pods(rendered("worker.drain=600"))["shop-worker"]
    assert worker["terminationGracePeriodSeconds"] > 600
    assert worker["containers"][0]["args"][4:6] == ["--drain", "600"]


def test_only_daemons_that_were_told_to_may_make_namespaces() -> None:
    plain, allowed = (pods(rendered("daemon.enabled=true", one))["shop-daemon"] for one in ("app=a:b", EVERYTHING[6]))
    assert "hostUsers" not in plain
    assert plain["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (allowed["hostUsers"], allowed["containers"][0]["securityContext"]["procMount"]) == (False, "Unmasked")


def test_a_scaler_without_tables_is_refused() -> None:
    done = helm("template", "shop", str(CHART), "--set", "keda.enabled=true")
    assert (done.returncode, "keda.tables must name" in done.stderr) == (1, True)


def test_kubernetes_knows_every_field(tmp_path: Path) -> None:
    text = helm("template", "shop", str(CHART), *(word for one in EVERYTHING for word in ("--set", one))).stdout
    (tmp_path / "all.yaml").write_text(text)
    if program := shutil.which("kubeconform"):
        command = [program, "-strict", "-ignore-missing-schemas", str(tmp_path / "all.yaml")]
    elif program := shutil.which("kubernetes-validate"):
        command = [program, "--strict", "-k", "1.33", str(tmp_path / "all.yaml")]
    else:
        pytest.skip("neither kubeconform nor kubernetes-validate is installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_scaler_counts_what_could_run_and_what_runs() -> None:
    text = (CHART / "templates" / "keda.yaml").read_text()
    (part,) = re.findall(r"\(SELECT count\(\*\).*AS jobs\)", text, re.DOTALL)
    query = "SELECT " + part.replace("{{ $table }}", "shop_orders")
    with clean_database() as url, psycopg.connect(url, autocommit=True) as conn:
        app = Hipq("shop", url)
        app.migrate()
        orders = app.queue("orders")
        counted = []

        @orders.job
        def charge(_: Any) -> Wait:
            counted.append(conn.execute(query.encode()).fetchone())
            return Wait()

        for number in range(3):
            charge.enqueue(number)
        charge.enqueue(delay=3600)
        assert conn.execute(query.encode()).fetchone() == (3,)
        app.run(until_empty=True, concurrency=1)
        assert counted[0] == (3,), "one runs, two are ready"
        assert conn.execute(query.encode()).fetchone() == (0,), "what waits for its answer needs no worker"
        app.close()
