"""What deploy/ says is true of the tree: paths, settings, probes; and systemd's own opinion of the units."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from leveret.config.config import Config, parse
from leveret.protocols.http.server.request import Level
from leveret.protocols.http.server.routes import find
from tests.sources import FOLDERS, ROOT

DEPLOY = ROOT / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text()
SERVICE = (DEPLOY / "leveret.service").read_text()

needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="needs systemd-analyze (Debian: systemd)"
)


def settings(text: str) -> dict[str, str]:
    """The variables for a node, however the file writes them."""
    pairs = re.findall(r"(LEVERET_\w+?)(?:=|: |, value: )('[^']*'|[^\s}]+)", text)
    return {name: value.strip("'") for name, value in pairs}


def test_the_settings_of_the_container_are_those_of_a_node():
    config = parse("", settings(CONTAINER))
    assert [str(entry.address) for entry in config.listeners] == ["0.0.0.0:5672"]
    assert str(config.http.address) == "0.0.0.0:15672"
    assert config.node.data_dir == Path("/var/lib/leveret")


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml"])
def test_the_settings_around_the_container_are_those_of_a_node(name: str):
    given = settings((DEPLOY / name).read_text())
    assert given
    assert parse("", given) != Config()


@pytest.mark.parametrize("name", ["compose-ha.yaml", "kubernetes-ha.yaml"])
def test_the_settings_of_a_clusters_nodes_are_those_of_one(name: str, tmp_path: Path):
    given = settings((DEPLOY / name).read_text())
    (tmp_path / "dsn").write_text("host=pg dbname=leveret")
    given["LEVERET_STORE__POSTGRES__DSN_FILE"] = str(tmp_path / "dsn")
    given["LEVERET_CLUSTER__ADDRESS"] = (
        given["LEVERET_CLUSTER__ADDRESS"].strip('"').replace("$(POD_IP)", "10.0.0.1")
    )
    given["LEVERET_CLUSTER__NODE"] = given["LEVERET_CLUSTER__NODE"].replace("$(POD_NAME)", "leveret-5f7")
    config = parse("", settings(CONTAINER) | given)
    assert config.cluster.is_on
    assert config.store.postgres.dsn == "host=pg dbname=leveret"
    assert config.store.postgres.require_replicated
    assert "postgres" in re.search(r"'\.\[(.*)\]'", CONTAINER)[1].split(",")


def test_what_the_container_is_built_from_is_there_and_let_through():
    copied = [word for line in re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINER, re.M) for word in line.split()]
    assert {*FOLDERS, "setup.py"} <= set(copied)
    let_through = (DEPLOY / "Containerfile.dockerignore").read_text().split()
    for path in copied:
        assert (ROOT / path).exists()
        assert f"!{path}" in let_through


@pytest.mark.parametrize("name", ["Containerfile", "kubernetes.yaml"])
def test_probes_ask_what_anybody_may_ask(name: str):
    paths = set(re.findall(r"/api/leveret/\w+", (DEPLOY / name).read_text()))
    assert paths
    for path in paths:
        assert find("GET", path)[0].level is Level.ANYBODY


def test_systemd_opens_the_addresses_that_a_node_has_without_a_configuration():
    opened = re.findall(r"^ListenStream=(.*)$", (DEPLOY / "leveret.socket").read_text(), re.M)
    assert opened == [*(str(entry.address) for entry in Config().listeners), str(Config().http.address)]


def test_the_service_sets_nothing_that_would_outrank_its_file():
    assert settings(SERVICE) == {}
    assert "Environment" not in SERVICE


def test_what_the_file_of_the_service_has_written_lies_in_folders_that_systemd_makes_writable():
    made = {unit: re.search(rf"^{unit}Directory=(.*)$", SERVICE, re.M)[1] for unit in ("State", "Logs")}
    config = parse((DEPLOY / "leveret.toml").read_text())
    assert config.node.data_dir == Path("/var/lib", made["State"])
    assert Path(config.log.audit or "").parent == Path("/var/log", made["Logs"])
    assert [str(entry.address) for entry in config.listeners] == [str(e.address) for e in Config().listeners]
    for page in ("docs/monitoring.md", "docs/configuration.md"):
        for path in re.findall(r'"(/var/log/[^"]+)"', (ROOT / page).read_text()):
            assert Path(path).parent == Path("/var/log", made["Logs"]), page


@pytest.fixture
def units(tmp_path: Path) -> list[str]:
    """The units, with a program in place of Leveret that is here."""
    for name in ("leveret.socket", "leveret.service"):
        text = (DEPLOY / name).read_text().replace("/opt/leveret/bin/leveret", shutil.which("true") or "")
        (tmp_path / name).write_text(text)
    return [str(tmp_path / "leveret.socket"), str(tmp_path / "leveret.service")]


def analyzed(*arguments: str) -> tuple[int, str]:
    """The exit code of systemd-analyze, and what it wrote."""
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


@needs_systemd
def test_systemd_finds_nothing_to_say_about_the_units(units: list[str]):
    assert analyzed("verify", *units) == (0, "")


@needs_systemd
def test_systemd_finds_little_that_the_service_may_do(units: list[str]):
    code, said = analyzed("security", "--offline=yes", "--threshold=15", "--no-pager", units[1])
    assert code == 0, said
