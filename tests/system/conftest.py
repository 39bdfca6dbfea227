"""Nodes that tests start, and that end with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from leveret import ThreadedNode
from leveret.durable.store.memory import MemoryStore

from .remote import Slow
from .served import ROOT, Serve


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(*flags, **environ)` starts a node, with so many descriptors; it is stopped at the end of the test.

    `limits` is an option of prlimit(1), and `program` the module that is run in place of the command `leveret`.
    """
    started: list[subprocess.Popen[str]] = []

    def serve(
        *flags: str,
        descriptors: int | None = None,
        limits: str | None = None,
        program: str = "leveret",
        **environ: str,
    ) -> subprocess.Popen[str]:
        if descriptors is not None:
            limits = f"--nofile={descriptors}"
        bound = [] if limits is None else ["prlimit", limits]
        command = [sys.executable, "-m", program, "serve", "--http", "127.0.0.1:0", *flags]
        node = subprocess.Popen(
            [*bound, *command],
            env={**os.environ, **environ},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(node)
        return node

    yield serve
    for node in started:
        node.kill()
        node.communicate()


@pytest.fixture
def slow() -> Iterator[Slow]:
    """A node whose disk does what a test says."""
    store = MemoryStore(held=True)
    with ThreadedNode(store=store) as node, Slow(node, store) as slow:
        yield slow
        with suppress(RuntimeError):  # it has been stopped
            slow.land_all()
