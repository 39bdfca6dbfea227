"""What holds of plain Python only.

Compiled code makes no calls that could be counted, and neither functions nor constants can be replaced in it.
"""

from __future__ import annotations

import pytest

from broker_core.node.build_info import built

plain_only = pytest.mark.skipif(
    built().compiled > 0, reason="in compiled code nothing can be counted or replaced"
)
