"""Prometheus' own tool reads what a node tells, and finds nothing to criticise."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.core.fakes import FakeConsumer
from tests.interop.conftest import missing
from tests.metrics.stand import Stand

pytestmark = pytest.mark.interop

FETCHED = Path(__file__).parent / ".fetched" / "promtool"


@pytest.fixture(scope="module")
def promtool() -> str:
    if FETCHED.exists():
        return str(FETCHED)
    return shutil.which("promtool") or missing("promtool", "as root on Debian: scripts/setup.sh peers")


@pytest.mark.parametrize(
    "target", ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"]
)
def test_promtool_has_nothing_to_say(promtool: str, target: str) -> None:
    stand = Stand()
    FakeConsumer(stand.queue("q"), credit=1)
    stand.publish("q", b"a", b"b")
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=stand.text(target),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
