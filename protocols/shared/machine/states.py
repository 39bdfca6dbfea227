"""The states of a connection of any version of AMQP."""

from enum import Enum
from typing import Final


class State(Enum):
    """The state of a connection; the value is its name in error texts."""

    # Of 1.0, whose login has stages of its own; the next five are those of 0-9-1 and 0-10.
    GREETING = "greeting"
    AWAITING_HEADER = "awaiting the protocol header"
    STARTING = "starting"
    SECURING = "securing"
    CHECKING = "checking the password"
    TUNING = "tuning"
    OPENING = "opening"
    OPEN = "running"
    CLOSING = "closing"
    CLOSED = "closed"


# What each read looks at: a name of a module is found at once; to look a member of an Enum up takes 0.3 us (3.11).
GREETING: Final = State.GREETING
AWAITING_HEADER: Final = State.AWAITING_HEADER
STARTING: Final = State.STARTING
SECURING: Final = State.SECURING
CHECKING: Final = State.CHECKING
TUNING: Final = State.TUNING
OPENING: Final = State.OPENING
OPEN: Final = State.OPEN
CLOSING: Final = State.CLOSING
CLOSED: Final = State.CLOSED

ENDING: Final = (CLOSING, CLOSED)
