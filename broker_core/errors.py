"""The failures that the core raises, neutral to protocols; each protocol's adapter maps them to codes by one table.

    Failure
     ├─ NotFound             the thing named does not exist
     ├─ AccessRefused        the user may not do this
     ├─ Locked               another client holds the thing exclusively
     ├─ PreconditionFailed   the request contradicts the present state, or itself
     │   ├─ InvalidProperty  a queue of that type cannot be declared like this
     │   └─ TooMany          the number of queues, exchanges, ... is at its limit
     ├─ NotAllowed           the connection may not go on like this
     │   └─ LimitReached     a configured limit forbids it
     └─ Unsupported          the broker (or this kind of queue) does not do this

The text of a failure is the whole sentence that a client sees after the protocol's own name of the condition.
"""

from __future__ import annotations

from typing import Final

MISTAKES: Final = (
    Exception,
    SystemExit,
)  # what code of ours, or of a plug-in, may raise without ending the node


PLUGIN_MISTAKES: Final = (
    *MISTAKES,
    KeyboardInterrupt,
)  # what a method of a plug-in may raise: where only its code runs, it is none of the operator's


class Failure(Exception):  # noqa: N818 - not every failure is an error of ours
    """The base of all refusals by the core. `str(failure)` is the sentence for the peer."""


class NotFound(Failure):
    """The exchange, queue, virtual host or consumer named does not exist."""


class AccessRefused(Failure):
    """The user lacks a permission, or the thing is reserved to the broker."""


class Locked(Failure):
    """The queue belongs to another connection, or to its single consumer."""


class PreconditionFailed(Failure):
    """The request cannot be met: inequivalent declaration, invalid argument, unknown delivery, large message, ..."""


class InvalidProperty(PreconditionFailed):
    """Queues of that type cannot have this property."""


class TooMany(PreconditionFailed):
    """The node or the virtual host already holds as many things of that kind as it may."""


class NotAllowed(Failure):
    """The connection as a whole does something it may not (unknown virtual host, reused consumer tag, ...)."""


class IllegalState(NotAllowed):
    """The state of what the request is about does not permit it, such as that of a distributed transaction."""


class Unsupported(Failure):
    """The request is valid in the protocol, but this queue type or profile does not serve it."""


class LimitReached(NotAllowed):
    """A limit of the node, the virtual host, the user or the channel is used up."""


class NotAtHand(Exception):  # noqa: N818 - it is no error
    """The next message is on its way here, from another machine or from the disk: the caller asks again in a moment.

    No client sees it.
    """


def no_exchange(name: str, virtual_host: str) -> NotFound:
    return NotFound(f"no exchange '{name}' in vhost '{virtual_host}'")


def no_queue(name: str, virtual_host: str) -> NotFound:
    return NotFound(f"no queue '{name}' in vhost '{virtual_host}'")
