"""For the tests of 0-10: the broker that most of them begin with, and a session with it."""

from __future__ import annotations

import pytest

from tests.harness.bench import ClientBench

from .client import ClientSession
from .peer import session_of


@pytest.fixture
def bench() -> ClientBench:
    return ClientBench()


@pytest.fixture
def session(bench: ClientBench) -> ClientSession:
    """There is a queue `q`."""
    session = session_of(bench)
    session.declare("q")
    return session
