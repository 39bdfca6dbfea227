"""A plug-in of pytest for suites that start their broker in a container: it gives them the one that is running."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import pytest


class DockerNotAvailableError(Exception):
    """Raised by what looks for containers; never here."""


@dataclass
class DockerHostInfo:
    """Where containers run."""

    container_host: str = "127.0.0.1"


@dataclass
class ContainerInfo:
    """A container with a broker, and its ports from outside."""

    id: str
    ports: dict[str, int]
    host: str


class DockerClient:
    """What runs containers: the broker that is running stands for each."""

    def __init__(self, host: DockerHostInfo | None = None) -> None:
        self.host = host or DockerHostInfo()

    def run(self, image: str, ports: Sequence[str], environment: object = None) -> ContainerInfo:
        return ContainerInfo(image, {port: int(port.partition("/")[0]) for port in ports}, "127.0.0.1")

    def kill(self, identity: str) -> None:
        pass

    def remove(self, identity: str) -> None:
        pass


def check_docker_available() -> DockerHostInfo:
    return DockerHostInfo()


@pytest.fixture(scope="session")
def rabbitmq_container() -> ContainerInfo:
    return DockerClient().run("broker", ["5672/tcp", "5671/tcp", "15672/tcp", "15671/tcp"])


@pytest.fixture(scope="session")
def amqp_direct_url() -> object:
    return import_module("yarl").URL("amqp://guest:guest@127.0.0.1:5672//")


module = ModuleType("tests.docker_client")
for each in (DockerNotAvailableError, DockerHostInfo, ContainerInfo, DockerClient, check_docker_available):
    setattr(module, each.__name__, each)
sys.modules["tests.docker_client"] = module
