"""The arguments of a queue's declaration: checked and compared by the table, and turned into limits."""

from __future__ import annotations

from typing import Final

from leveret.arguments.checks import text, text_fault
from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS, QueueArgument
from leveret.errors import InvalidProperty, PreconditionFailed
from leveret.limits import QueueLimits, QueueType
from leveret.values import Table, Value, described, frozen, type_name

KINDS_MAX: Final = 256
known: Final[dict[QueueLimits, QueueLimits]] = {}


def parse_queue_arguments(
    name: str, virtual_host: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table
) -> QueueLimits:
    """Return the limits that a declaration asks for (S078, S079, X021-X023).

    Raises PreconditionFailed if an argument, or a property of the queue, does not fit.
    """
    queue = f"queue '{name}' in vhost '{virtual_host}'"
    refuse_untexted_exchange(arguments, queue)
    refuse_faulty(arguments, queue)
    type_ = queue_type(arguments)
    refuse_foreign(arguments, type_, queue)
    refuse_properties(type_, durable, exclusive, auto_delete, queue)
    return shared(limits_of(arguments))


def shared(limits: QueueLimits) -> QueueLimits:
    """Return one shared instance of equal limits, to save 0.4 KiB a queue. At most `KINDS_MAX` kinds are remembered."""
    if len(known) >= KINDS_MAX:
        known.clear()
    return known.setdefault(limits, limits)


def queue_type(arguments: Table) -> QueueType:
    """Return the queue type that checked arguments ask for; absent and void both mean classic (X017)."""
    word = arguments.get("x-queue-type")
    return QueueType.CLASSIC if word is None else QueueType(text(word))


def limits_of(arguments: Table) -> QueueLimits:
    """Return the limits that checked arguments ask for."""
    limits = {
        row.field: row.read(value, arguments)
        for name, value in arguments.items()
        if (row := QUEUE_ARGUMENTS.get(name)) is not None and row.field
    }
    overflow_asked = text(arguments.get("x-overflow")) is not None
    return QueueLimits(overflow_asked=overflow_asked, **limits)  # type: ignore[arg-type]  # a row reads into its field


def refuse_untexted_exchange(arguments: Table, queue: str) -> None:
    """Refuse a dead letter exchange that is no string: it has its own error text, given before all others (S079)."""
    argument = "x-dead-letter-exchange"
    if argument in arguments and text_fault(arguments[argument]) is not None:
        kind = type_name(arguments[argument])
        raise PreconditionFailed(f"invalid type '{kind}' for arg '{argument}' in {queue}")


def refuse_void_type(arguments: Table, queue: str) -> None:
    """Refuse a queue type that is void in a declaration. Those in the store, from before, mean none."""
    if "x-queue-type" in arguments and arguments["x-queue-type"] is None:
        raise PreconditionFailed(f"invalid arg 'x-queue-type' for {queue}: unacceptable type 'void'")


def refuse_faulty(arguments: Table, queue: str) -> None:
    for name, row in QUEUE_ARGUMENTS.items():
        if name in arguments and (fault := fault_of(row, arguments)) is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {queue}: {fault}")


def fault_of(row: QueueArgument, arguments: Table) -> str | None:
    value = arguments[row.name]
    return row.check(value) or row.fits(value, arguments)


def refuse_foreign(arguments: Table, type_: QueueType, queue: str) -> None:
    for name, row in QUEUE_ARGUMENTS.items():
        if name in arguments and type_ not in row.types:
            raise PreconditionFailed(f"invalid arg '{name}' for {queue} of queue type {type_.module}")


def refuse_properties(
    type_: QueueType, durable: bool, exclusive: bool, auto_delete: bool, queue: str
) -> None:
    """Refuse properties by which a quorum queue or stream would not outlive connections and restarts."""
    if type_ is QueueType.CLASSIC:
        return
    if not durable:
        raise InvalidProperty(f"invalid property 'non-durable' for {queue}")
    if exclusive:
        raise InvalidProperty(f"invalid property 'exclusive-owner' for {queue}")
    if auto_delete and type_ is QueueType.STREAM:
        raise InvalidProperty(f"invalid property 'auto-delete' for {queue}")


def inequivalent_argument(current: Table, new: Table) -> tuple[str, str, str] | None:
    """Return the first checked argument that differs in meaning: name, description of new and current value (S065).

    Whole numbers are compared by value, whatever their width on the wire, and differ from others; no queue type means
    `classic` (X017).
    """
    for name, row in QUEUE_ARGUMENTS.items():
        old, wanted = current.get(name), new.get(name)
        if row.compared and meaning(row, old) != meaning(row, wanted):
            return name, described(wanted), described(old)
    return None


def meaning(row: QueueArgument, value: Value) -> object:
    if value is None:
        return row.absent
    if isinstance(value, float):
        return "float", value
    return frozen(text(value) if isinstance(value, bytes) else value)
