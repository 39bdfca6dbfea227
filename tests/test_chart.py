"""The chart for Kubernetes: helm renders it, the API's own schemas accept it, and a node understands what it sets.

Without helm (`scripts/setup.sh helm` fetches it) the values are still held against their schema and the templates.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
import pytest
import yaml

from leveret.config.config import Config, parse
from leveret.protocols.http.server.request import Level
from leveret.protocols.http.server.routes import find
from leveret.version import VERSION
from tests.interop.conftest import missing
from tests.sources import ROOT

CHART: Final = ROOT / "deploy/helm/leveret"
VALUES: Final = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES: Final = {path: path.read_text() for path in sorted(CHART.glob("templates/**/*")) if path.is_file()}
KUBERNETES: Final = ("1.25", "1.37")  # the oldest that Chart.yaml admits, and the newest that is known here
FULL: Final = {
    "tls": {"enabled": True, "existingSecret": "certificate"},
    "definitions": {"existingSecret": "definitions"},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "auth": {"username": "root", "password": "sesame"},
    "persistence": {"storageClass": "fast", "size": "100Gi", "annotations": {"a": "b"}},
    "config": '[memory]\nwatermark = 0.5\n[http]\nwebsocket = true\n[[users]]\nname = "shop"\npassword = "pw"\n',
    "extraEnv": [{"name": "LEVERET_LOG__LEVEL", "value": "debug"}],
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "broker", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
    "podLabels": {"team": "shop"},
    "podAnnotations": {"note": "1"},
    "priorityClassName": "high",
}
SHARED: Final = {
    "replicas": 2,
    "store": {"engine": "postgres", "postgres": {"existingSecret": "leveret-db-app"}},
    "definitions": {"existingSecret": "definitions"},
}
SMALL: Final = {
    "persistence": {"enabled": False},
    "serviceAccount": {"create": False},
    "fullnameOverride": "mq",
}


@pytest.fixture(scope="module")
def helm() -> str:
    fetched = ROOT / "tests/interop/.fetched/helm"
    found = str(fetched) if fetched.exists() else shutil.which("helm")
    return found or missing("helm", "scripts/setup.sh helm, on Linux on x86_64")


def ran(helm: str, *arguments: str, values: object = None) -> subprocess.CompletedProcess[str]:
    text = json.dumps(values or {})
    command = [helm, *arguments, str(CHART), "--values", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)


def rendered(helm: str, values: object = None) -> list[dict[str, Any]]:
    done = ran(helm, "template", "shop", "--namespace", "prod", values=values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(each for each in objects if each["kind"] == kind)


def container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]


def expanded(value: str) -> str:
    """Return a value of the environment as Kubernetes passes it to the pod."""
    return value.replace("$(POD_NAME)", "shop-leveret-0").replace("$(POD_IP)", "10.0.0.7")


def configured(objects: list[dict[str, Any]], folder: Path) -> Config:
    """Return what a node makes of the files and the environment that the pod has, with the files in `folder`."""
    (folder / "password").write_text(one(objects, "Secret")["stringData"]["password"])
    text = one(objects, "ConfigMap")["data"]["leveret.toml"]
    given = container(objects)["env"]
    environ = {each["name"]: expanded(each["value"]) for each in given if "value" in each}
    return parse(text.replace("/etc/leveret/admin", str(folder)), environ)


@pytest.mark.parametrize(
    "values", [{}, FULL, SMALL, SHARED], ids=["the defaults", "everything", "little", "two nodes"]
)
def test_helm_finds_nothing_to_say_and_kubernetes_takes_what_is_rendered(helm: str, values: dict[str, Any]):
    done = ran(helm, "lint", "--strict", values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout
    objects = rendered(helm, values)
    for each in objects:
        # of an operator, and in no release of Kubernetes
        if each["apiVersion"].startswith("monitoring.coreos.com"):
            continue
        for version in KUBERNETES:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_node_of_a_pod_has_the_settings_and_users_of_the_chart(helm: str, tmp_path: Path):
    config = configured(rendered(helm, FULL), tmp_path)
    assert [str(entry.address) for entry in config.listeners] == ["0.0.0.0:5672", "0.0.0.0:5671"]
    assert config.listeners[1].tls is not None
    assert (str(config.http.address), config.http.websocket) == ("0.0.0.0:15672", True)
    assert config.node.data_dir == Path("/var/lib/leveret")
    assert config.definitions.load == (Path("/etc/leveret/definitions/definitions.json"),)
    assert (config.memory_watermark, config.log.level) == (0.5, "debug")
    assert [(user.name, user.password) for user in config.users] == [("shop", "pw"), ("root", "sesame")]
    assert set(config.users[-1].tags) == {"administrator"}


def test_nodes_with_one_database_are_a_cluster(helm: str, tmp_path: Path):
    """Each has a name and an address of its own; what it keeps on its disk is a copy, gone with the pod."""
    objects = rendered(helm, SHARED)
    dsn = tmp_path / "uri"
    dsn.write_text("host=db dbname=leveret")
    for each in container(objects)["env"]:
        if each["name"] == "LEVERET_STORE__POSTGRES__DSN_FILE":
            assert each["value"] == "/etc/leveret/database/uri"
            each["value"] = str(dsn)
    config = configured(objects, tmp_path)
    assert (config.store.engine, config.store.postgres.require_replicated) == ("postgres", True)
    cluster = config.cluster
    assert (cluster.name, cluster.node, str(cluster.address)) == ("shop", "shop-leveret-0", "10.0.0.7:5680")
    assert (cluster.lease_ttl, cluster.relay) == (5, True)
    assert "volumeClaimTemplates" not in one(objects, "StatefulSet")["spec"]
    assert one(objects, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    (store,) = pod["initContainers"]
    assert "leveret store init --dsn @/etc/leveret/database/uri --schema leveret" in store["command"][-1]
    mounted = {each["name"] for each in container(objects)["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


@pytest.mark.parametrize("relays", [True, False])
def test_the_service_leads_to_the_node_that_serves_where_others_pass_nobody_on(helm: str, relays: bool):
    node = container(rendered(helm, {**SHARED, "cluster": {"relay": relays}}))
    probe = node["readinessProbe"]
    if relays:
        assert probe["tcpSocket"] == {"port": "amqp"}
    else:
        assert find("GET", probe["httpGet"]["path"])[0].level is Level.ANYBODY
        assert probe["httpGet"]["path"].endswith("is-owner")


def test_a_password_that_nobody_has_chosen_is_long_and_another_each_time(helm: str, tmp_path: Path):
    first, second = (configured(rendered(helm), tmp_path).users for _ in range(2))
    assert [user.name for user in first] == ["admin"]
    assert first[0].password != second[0].password
    assert len(first[0].password or "") == 24


def test_what_the_pod_mounts_is_where_its_settings_look(helm: str):
    objects = rendered(helm, FULL)
    pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    mounted = {each["mountPath"]: each["name"] for each in container(objects)["volumeMounts"]}
    claimed = {
        each["metadata"]["name"] for each in one(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    }
    assert set(mounted.values()) == {each["name"] for each in pod["volumes"]} | claimed
    text = json.dumps(container(objects)["env"]) + one(objects, "ConfigMap")["data"]["leveret.toml"]
    for path in re.findall(r"/etc/leveret/\w+", text):
        assert path in mounted
    assert (
        one(objects, "ServiceMonitor")["spec"]["endpoints"][0]["basicAuth"]["password"]["key"] == "password"
    )


def test_probes_ask_what_anybody_may_ask(helm: str):
    node = container(rendered(helm))
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert find("GET", node[probe]["httpGet"]["path"])[0].level is Level.ANYBODY


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 3}, "replicas"),
        ({"store": {"engine": "postgres"}}, "existingSecret"),
        ({"store": {"engine": "mysql"}}, "engine"),
        ({"persistance": {"size": "1Gi"}}, "persistance"),
        ({"tls": {"enabled": True}}, "existingSecret"),
        ({"config": '[[listeners]]\naddress = "0.0.0.0:1"\n'}, "are the chart's to say"),
        ({"config": '[http]\nwebsocket = true\naddress = "0.0.0.0:1"\n'}, "are the chart's to say"),
        ({"config": '[node]\ndata_dir = "/data"\n'}, "are the chart's to say"),
    ],
)
def test_values_without_effect_are_refused(helm: str, values: dict[str, Any], said: str):
    done = ran(helm, "template", "shop", values=values)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_values_keep_to_their_schema_and_each_is_used_by_a_template():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    used = {path for text in TEMPLATES.values() for path in re.findall(r"\.Values((?:\.\w+)+)", text)}
    assert {path for path in used if not known(path)} == set()
    mentioned = {path.split(".")[1] for path in used}
    assert set(VALUES) <= mentioned
    assert set(SCHEMA["properties"]) - set(VALUES) == {"global", "nameOverride", "fullnameOverride"}


def known(path: str) -> bool:
    value: Any = VALUES
    for name in path.split(".")[1:]:
        if name not in value:
            return name in SCHEMA["properties"]
        value = value[name]
    return True


def test_the_chart_is_for_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == VERSION


def test_kubernetes_takes_the_example_without_helm():
    for version in KUBERNETES:
        for each in yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text()):
            kubernetes_validate.validate(each, version, strict=True)
