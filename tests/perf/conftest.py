"""Loads on a node in a thread, told as on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from leveret.perf import cli
from leveret.perf.command import measure, plan_of
from tests.interop.conftest import RunningNode, node, node_with

__all__ = ["node", "node_with"]

Load = Callable[[str], tuple[Any, int]]


def options(said: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.COMMAND.add_to(parser, {})
    return parser.parse_args(said.split())


@pytest.fixture
def load(node: RunningNode) -> Load:
    """What a load of the node came to, and the exit code."""

    def run(said: str) -> tuple[Any, int]:
        return measure(plan_of(options(f"--url {node.url} {said}")))

    return run
