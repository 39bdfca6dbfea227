"""Check what the code of an exchange type does: that of a plug-in may answer, or raise, anything.

A wrong answer is handled as an exception is: it is counted and logged, and the message takes the alternate exchange.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from leveret.errors import PLUGIN_MISTAKES, Failure, PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Exchange, Selected
from leveret.queues.queue import Queue

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import ExchangeType

log: Final = logging.getLogger("leveret.broker")

DESTINATIONS_MAX: Final = 1_000_000  # of one message in one exchange: a generator without an end is stopped
SHOWN_MAX: Final = 80  # characters of an answer in an error


class WrongAnswer(Exception):  # noqa: N818 - the text is all there is to it
    """`route` returned something else than queues and exchanges. The text is the whole sentence."""


def destinations(exchange: Exchange, answer: object) -> list[Destination]:
    """Return the destinations that an exchange's type answered with, which must exist. Raises as `listed` does."""
    found = listed(answer)
    for each in found:
        _require_present(exchange, each)
    return found


def listed(answer: object) -> list[Destination]:
    """Return the destinations in an answer. Raises WrongAnswer, or what a generator raises."""
    if isinstance(answer, str | bytes) or not hasattr(answer, "__iter__"):
        raise WrongAnswer(f"route() returned {_shown(answer)}, not a list of queues and exchanges")
    found: list[Destination] = []
    for each in cast("Iterable[object]", answer):
        if not isinstance(each, Destination):
            raise WrongAnswer(
                f"route() returned {_shown(each)} among its destinations: no queue and no exchange"
            )
        found.append(each)
        if len(found) > DESTINATIONS_MAX:
            raise WrongAnswer(f"route() returned more than {DESTINATIONS_MAX} destinations")
    return found


def _require_present(exchange: Exchange, destination: Destination) -> None:
    """Check that a destination exists, and in the same virtual host. Raises WrongAnswer."""
    end = destination.end if isinstance(destination, Selected) else destination
    host = exchange.virtual_host
    if isinstance(end, Queue):
        is_there = end.virtual_host is host and not end.deleted
    elif isinstance(end, Exchange):
        is_there = host.exchanges.get(end.name) is end
    else:
        is_there = False
    if not is_there:
        raise WrongAnswer(
            f"route() returned {_shown(end)}, which vhost '{host.name}' does not have (any more)"
        )


def _shown(answer: object) -> str:
    """Return an object as text for an error, even if its own code fails."""
    try:
        text = repr(answer)
    except Exception:
        text = f"an object of {type(answer).__name__}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


@contextmanager
def mistakes_refused(type_class: type[ExchangeType], what: str) -> Iterator[None]:
    """Turn what a type's code should not raise into a refusal of the request. Raises PreconditionFailed.

    `what` it failed to do is told to the client, and logged with the traceback.
    """
    try:
        yield
    except Failure:
        raise
    except PLUGIN_MISTAKES as error:
        log.error(
            "exchange type %s failed to %s (%s)", type_class.name, what, file_of(type_class), exc_info=error
        )
        raise PreconditionFailed(
            f"exchange type '{type_class.name}' failed to {what}: {type(error).__name__}: {error}"
        ) from None


def described(exchange: Exchange) -> str:
    """Return an exchange with its type for the log."""
    return f"exchange '{exchange.name}' of type {exchange.type.name} in vhost '{exchange.virtual_host.name}'"


def source_file(exchange: Exchange) -> str:
    """Return the path of the file that an exchange's type comes from, or the name of its module."""
    return file_of(type(exchange.type))


def file_of(type_class: type[object]) -> str:
    """Return the path of the file that a plug-in's class comes from, or the name of its module."""
    module = str(vars(type_class)["__module__"])  # compiled, a class has no such attribute
    return getattr(sys.modules.get(module), "__file__", None) or module
