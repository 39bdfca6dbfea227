"""A pair and two nodes for all rounds of a module; a node that a round has ended is started for the next one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.ha.scene import HaScene
from tests.harness.postgres import Pair, need_postgres


@pytest.fixture(scope="module")
def own_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaScene]:
    need_postgres()
    pair = Pair.made()
    scene = HaScene(tmp_path_factory.mktemp("ha"), pair)
    try:
        yield scene
    finally:
        scene.end()
        pair.end()


@pytest.fixture
def scene(own_scene: HaScene) -> HaScene:
    """Both nodes run, and one of them serves."""
    own_scene.start()
    return own_scene


@pytest.fixture(autouse=True)
def quiet_clients() -> Iterator[None]:
    """Keep the log of a round to what the nodes say: every client is refused many times."""
    logger = logging.getLogger("pika")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)
