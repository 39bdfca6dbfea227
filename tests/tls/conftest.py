"""One set of certificates for each test: nothing is on the disk before, and nothing stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pki import Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)
