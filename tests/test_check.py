"""`make check` runs the tests that are near what was changed."""

from __future__ import annotations

import runpy

import pytest

from tests.sources import ROOT

near = runpy.run_path(str(ROOT / "scripts/check.py"))["near"]

AROUND = ["tests/test_architecture.py", "tests/test_docstrings.py"]
TESTS = {
    "tests/amqp091/test_encoding.py": "from leveret.protocols.amqp091.broker.encoding import ENCODING\n",
    "tests/amqp10/test_encoding.py": "from leveret.protocols.amqp10.broker.encoding import ENCODING\n",
    "tests/core/queues/test_lane.py": "from leveret.queues import lane\n",
    "tests/core/test_broker.py": "from leveret.broker import Broker\nfrom leveret.queues.lane import Lane\n",
    "tests/core/test_clock.py": "from leveret.clock import Clock\n",
    "tests/crash/test_kill.py": "from leveret.queues.lane import Lane\n",
    "tests/crash/test_lane.py": "",
    "tests/server/cli/test_lists.py": "",
    "tests/test_install.py": "",
    "tests/test_project.py": "",
}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (["tests/core/test_clock.py"], ["tests/core/test_clock.py"]),
        (["broker_core/clock.py"], ["tests/core/test_clock.py", *AROUND]),
        (
            ["broker_core/queues/lane.py"],
            ["tests/core/queues/test_lane.py", *AROUND, "tests/core/test_broker.py"],
        ),
        (["protocols/amqp091/broker/encoding.py"], ["tests/amqp091/test_encoding.py", *AROUND]),
        (["server/cli/lists.py"], ["tests/server/cli/test_lists.py", *AROUND]),
        (["tests/crash/test_kill.py"], ["tests/crash/test_kill.py"]),
        (["tests/crash/load.py"], []),
        (["setup.py"], ["tests/test_install.py", "tests/test_project.py"]),
        (["docs/store.md"], ["tests/test_project.py", "tests/test_site.py"]),
        (["LICENSE"], []),
        ([], []),
    ],
    ids=lambda value: value[0] if value else "nothing",
)
def test_the_nearest_tests_come_first(changed: list[str], found: list[str]) -> None:
    assert near(changed, TESTS) == found
