"""For the tests of 1.0: the broker that most of them begin with, and a session with it."""

from __future__ import annotations

import pytest

from tests.harness.bench import ClientBench

from .client import Session
from .controller import Control
from .peer import declared, session_of


@pytest.fixture
def bench() -> ClientBench:
    """There is a queue `q`."""
    return declared(ClientBench(), ["q"])


@pytest.fixture
def session(bench: ClientBench) -> Session:
    return session_of(bench)


@pytest.fixture
def control(session: Session) -> Control:
    return Control(session)
