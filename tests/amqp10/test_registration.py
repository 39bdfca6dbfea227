"""What a node knows of AMQP 1.0 before anybody speaks it."""

import subprocess
import sys

LOADED = """
import sys
import leveret.protocols.amqp10.broker.registration
print([name for name in sys.modules if name.startswith("leveret.protocols.amqp10.")])
"""

RESTARTED = """
import sys
from leveret.broker import Broker
from leveret.protocols.amqp10.broker.registration import restored
broker = Broker()
queue = broker.add_virtual_host("/").declare_queue("q")
restored(broker)
print([name for name in sys.modules if name.startswith("leveret.protocols.amqp10.")])
"""


def test_the_front_end_is_not_imported_before_it_is_needed() -> None:
    """Nor at a start without subscriptions to find again."""
    for script in (LOADED, RESTARTED):
        command = [sys.executable, "-c", script]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert (
            printed.strip()
            == "['leveret.protocols.amqp10.broker', 'leveret.protocols.amqp10.broker.registration']"
        )
