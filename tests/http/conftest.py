"""For the tests of HTTP: desks, presses and stands, each with a broker of its own."""

from __future__ import annotations

import pytest

from .desk import Desk
from .press import Press
from .stand import Stand


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def press() -> Press:
    return Press()


@pytest.fixture
def stand() -> Stand:
    return Stand()
