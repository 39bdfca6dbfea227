"""Lists of what a protocol keeps besides queues and messages, as its code offers them to operators.

    Protocol.listings ─> Listing ─> rows, columns ─> the API, the page, the command line

They know of a list what it says of itself: none of them knows a protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from leveret.message import Message
    from leveret.values import Table
    from leveret.virtual_host import VirtualHost


class Shape(Enum):
    """The way in which a page shows the values of a column."""

    TEXT = "text"  # or yes and no
    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    CONNECTION = "connection"  # the name of one: a link
    QUEUES = "queues"  # names: links


@attrs.frozen
class Column:
    """A column of a list on a page: the field of its records, and the heading above it."""

    field: str
    title: str
    shape: Shape = Shape.TEXT


@attrs.frozen
class Listing:
    """A list of what a protocol keeps in virtual hosts besides queues and messages, for operators: such as sessions.

    `names` returns the names of the things in a virtual host; others may come and go while it is iterated. `row`
    returns the record of one, with `name` and `vhost`, or None if it is gone; all records have the same fields.
    `delete` ends it, and returns whether it was there. `message` returns the message that it is, where it is one. All
    are called when an operator looks, and raise nothing.
    """

    name: str  # in paths: a plural in small letters
    title: str  # above the list on a page, such as `Sessions of X`
    names: Callable[[VirtualHost], Iterable[str]]
    row: Callable[[VirtualHost, str], Table | None]
    columns: Sequence[Column] = ()  # after the name, and the virtual host
    delete: Callable[[VirtualHost, str], bool] | None = None
    message: Callable[[VirtualHost, str], Message | None] | None = None

    def rows(self, host: VirtualHost) -> Iterator[Table]:
        """Return the records of all things in a virtual host."""
        for name in self.names(host):
            if (row := self.row(host, name)) is not None:
                yield row
