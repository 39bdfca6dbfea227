"""The pytest plugin: a broker for tests (fixture `leveret_broker`).

pytest loads it wherever Leveret is installed, so the rest of Leveret is imported only when a test uses a fixture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leveret.config.config import Config
    from leveret.server.node.threaded import ThreadedNode
    from leveret.testing.leveret_broker import LeveretBroker

HELP = "configuration of the node behind leveret_broker (TOML); its addresses and data folder are ignored"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("leveret").addoption("--leveret-config", metavar="FILE", type=Path, help=HELP)
    parser.addini("leveret_config", f"{HELP}; relative to the folder of this file")


@pytest.fixture(scope="session")
def leveret_config(pytestconfig: pytest.Config) -> Config:
    """The configuration of `leveret_node`: that of the option, or a bare node in memory. Override it if needed."""
    from leveret.config.config import load
    from leveret.server.node.threaded import EMBEDDED, embedded

    file: Path | None = pytestconfig.getoption("leveret_config")
    if file is None and (name := pytestconfig.getini("leveret_config")):
        file = (pytestconfig.inipath or pytestconfig.rootpath / "here").parent / name
    if file is None:
        return embedded()
    aside = {"listeners": EMBEDDED["listeners"], "http.enabled": False, "node.data_dir": None}
    return load(file, os.environ, aside)


@pytest.fixture(scope="session")
def leveret_node(leveret_config: Config) -> Iterator[ThreadedNode]:
    """A node on a free port of 127.0.0.1, for the whole run; its virtual hosts are isolated from each other."""
    from leveret.testing.driven_node import DrivenNode

    with DrivenNode(leveret_config) as node:
        yield node


@pytest.fixture
def leveret_broker(leveret_node: ThreadedNode) -> Iterator[LeveretBroker]:
    """An empty broker for a test: `url`, `published(exchange)`, `queue(name)`, `unacked(name)`, `faults`, `clock`."""
    from leveret.testing.leveret_broker import fresh_broker

    with fresh_broker(leveret_node) as broker:
        yield broker
