"""For the tests of the management API: the brokers that most of them ask."""

from __future__ import annotations

import pytest

from .lobby import Lobby
from .office import Office


@pytest.fixture
def lobby() -> Lobby:
    return Lobby()


@pytest.fixture
def office() -> Office:
    return Office()
