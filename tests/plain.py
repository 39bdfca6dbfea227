"""What holds of plain Python only: of calls that are counted or replaced, compiled code makes none that could be."""

from __future__ import annotations

import pytest

from broker_core.built import built

plain_only = pytest.mark.skipif(
    built().compiled > 0, reason="compiled code makes no call that can be counted or replaced"
)
