"""The table of arguments that bindings from every exchange may have; exchange types declare their own."""

from __future__ import annotations

from typing import Final

from leveret.arguments.checks import text_fault, whole_fault
from leveret.arguments.row import Row, by_name

BINDING_ARGUMENTS: Final = by_name(
    Row(
        name="x-filter-jms-selector",
        about="A condition on messages, without which they do not go this way: a selector.",
        check=text_fault,
    ),
    Row(
        name="x-bound-from",
        about="The links of a [federation](federation.md) over which the binding has come.",
    ),
    Row(
        name="x-stream-partition-order",
        about="The place of a stream among those of a super stream.",
        check=whole_fault,
    ),
)
