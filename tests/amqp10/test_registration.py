"""What a node knows of AMQP 1.0 before anybody speaks it."""

import subprocess
import sys

LOADED = """
import sys
import protocols.amqp10.registration
print([name for name in sys.modules if name.startswith("protocols.amqp10.")])
"""


def test_the_front_end_is_not_imported_before_it_is_needed() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "['protocols.amqp10.registration']"
