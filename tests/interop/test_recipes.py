"""The recipes of docs/recipes.md: the files of each are written to a folder, and its tests run against real brokers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pika
import pytest
import yaml

from leveret.config.config import load
from leveret.server.node.threaded import ThreadedNode
from tests.harness.seldom import recipes
from tests.interop.conftest import need_module
from tests.sources import ROOT

pytestmark = pytest.mark.interop

PAGE: Final = (ROOT / "docs/recipes.md").read_text()
MODULES: Final = {
    "asyncio, with aio-pika": ("aio_pika",),
    "FastAPI": ("aio_pika", "fastapi", "httpx"),
    "FastStream": ("faststream.rabbit",),
    "Django": ("django", "pytest_django"),
    "Celery": ("celery",),
    "dramatiq": ("dramatiq",),
    "testcontainers": ("testcontainers",),
}
CONTAINERS: Final = ("GitHub Actions", "GitLab CI", "docker compose")
# What stands in for Docker: the node of the image, at free ports, configured by the container's environment.
STAND_IN: Final = """
from unittest.mock import Mock

import pytest
from testcontainers.core import container as containers
from testcontainers.core.container import DockerContainer

from leveret.config.config import load
from leveret.server.node.threaded import ThreadedNode


@pytest.fixture(autouse=True, scope="session")
def stand_in():
    nodes = []

    def start(container):
        aside = {"listeners": [{"address": "127.0.0.1:0"}], "http.address": "127.0.0.1:0"}
        nodes.append(ThreadedNode(load(None, container.env, aside)))
        nodes[0].start()
        return container

    def ports(container, port):
        address = nodes[0].call(lambda: nodes[0].node.addresses[-1])
        return {5672: nodes[0].port, 15672: int(address.rpartition(":")[2])}[port]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containers, "DockerClient", Mock())
        patch.setattr(DockerContainer, "start", start)
        patch.setattr(DockerContainer, "stop", lambda container: nodes[0].stop())
        patch.setattr(DockerContainer, "get_exposed_port", ports)
        patch.setattr(DockerContainer, "get_container_host_ip", lambda container: "127.0.0.1")
        yield
"""


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(title: str) -> dict[str, str]:
    """The files of a recipe: each block is one, whose name is in its first line."""
    found = re.findall(
        r"^```(?:python|ini|yaml)\n# (\S+)\n(.*?)^```$", section(title), re.DOTALL | re.MULTILINE
    )
    assert len(found) == section(title).count("```") // 2 > 0
    return dict(found)


def test_every_recipe_is_tried():
    assert re.findall("^## (.*)$", PAGE, re.MULTILINE) == sorted(
        [*MODULES, *CONTAINERS], key=lambda title: PAGE.index(f"\n## {title}\n")
    )


@recipes
@pytest.mark.parametrize("title", MODULES)
def test_the_tests_of_a_recipe_pass(title: str, tmp_path: Path):
    for name in MODULES[title]:
        need_module(name)
    for name, text in blocks(title).items():
        (tmp_path / name).write_text(text)
    if title == "testcontainers":
        (tmp_path / "conftest.py").write_text(STAND_IN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "."],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DJANGO"))},
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def values_of(name: str, tree: Any) -> list[str]:
    """The values of a variable, wherever in a file of YAML they are."""
    if isinstance(tree, dict):
        return [v for k, v in tree.items() if k == name] + values_of(name, list(tree.values()))
    return [found for each in tree for found in values_of(name, each)] if isinstance(tree, list) else []


@pytest.mark.parametrize("title", CONTAINERS)
def test_the_user_of_a_container_can_log_in(title: str):
    tree = [yaml.safe_load(text) for text in blocks(title).values()]
    (users,), (url,) = values_of("LEVERET_USERS", tree), values_of("AMQP_URL", tree)
    aside = {"listeners": [{"address": "127.0.0.1:0"}], "http.enabled": False}
    with ThreadedNode(load(None, {"LEVERET_USERS": users}, aside)) as node:
        here = re.sub("@.*:5672", f"@127.0.0.1:{node.port}", url)
        with pika.BlockingConnection(pika.URLParameters(here)) as connection:
            connection.channel().queue_declare("parcels")
