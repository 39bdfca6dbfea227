"""Where an AMQP 0-9-1 connection can be."""

from enum import Enum
from typing import Final


class State(Enum):
    """Where a connection is; the value is how error texts call it."""

    AWAITING_HEADER = "awaiting the protocol header"
    STARTING = "starting"
    SECURING = "securing"
    CHECKING = "checking the password"
    TUNING = "tuning"
    OPENING = "opening"
    OPEN = "running"
    CLOSING = "closing"
    CLOSED = "closed"


ENDING: Final = (State.CLOSING, State.CLOSED)
AUTHENTICATING: Final = (State.STARTING, State.SECURING, State.CHECKING)
