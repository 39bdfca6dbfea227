"""The table of arguments that every exchange may have. Exchange types declare their own: `ExchangeType.arguments`."""

from __future__ import annotations

from typing import Final

import attrs

from leveret.arguments import deduplication_settings as deduplication
from leveret.arguments.checks import text_fault, truth_fault
from leveret.arguments.row import Row, by_name
from leveret.values import Value


@attrs.frozen(kw_only=True)
class ExchangeArgument(Row):
    """An argument of exchanges, and the policy key of the same meaning. `example` is a value that changes something."""

    example: Value
    key: str = ""  # of policies


EXCHANGE_ARGUMENTS: Final = by_name(
    ExchangeArgument(
        name="alternate-exchange",
        about="The exchange that gets messages for which this one knows no queue.",
        check=text_fault,
        example="unrouted",
        key="alternate-exchange",
    ),
    ExchangeArgument(
        name="x-delayed-exchange",
        about="Messages whose headers say so (x-delay, x-opt-delivery-time) wait in their queues until they are due.",
        check=truth_fault,
        example=True,
    ),
    *(
        ExchangeArgument(name=name, about=about, check=deduplication.CHECKS[name], example=example, key=name)
        for name, about, example in (
            (
                deduplication.DEDUPLICATES,
                "Messages whose id was taken before are confirmed, and dropped.",
                True,
            ),
            (
                deduplication.HEADER,
                "The header that has a message's id, by which duplicates are told.",
                "order",
            ),
            (deduplication.SIZE, "How many ids are known at most, to tell duplicates.", 1000),
            (deduplication.TTL, "For how many milliseconds an id is known, to tell duplicates.", 60_000),
            (
                deduplication.PERSISTENCE,
                "Whether the ids, by which duplicates are told, are on disk.",
                "memory",
            ),
        )
    ),
    ExchangeArgument(
        name="x-super-stream",
        about="The exchange is that of a super stream, whose streams are bound to it.",
        check=truth_fault,
        example=True,
    ),
)
