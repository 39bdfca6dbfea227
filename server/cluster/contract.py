"""Define what nodes see of the row of a shard: the node that serves, its epoch, and its signs of life.

`durable/store/postgres/shard.py` has the row that lasts. All methods of a shard wait for the database, so that a
thread calls them, and only one at a time.
"""

from __future__ import annotations

from typing import Final, Protocol

HEIR: Final = "heir:"  # begins the address of a row that is meant for one node


class RowView(Protocol):
    """A shard's row at one moment."""

    @property
    def epoch(self) -> int:
        """One more with each takeover."""

    @property
    def owner(self) -> str | None:
        """The name of the node that serves; None: the last one has released the row, or there never was one."""

    @property
    def address(self) -> str | None:
        """The owner's own text about where it is; of a released row: the node that is to take over, if any."""

    @property
    def beat(self) -> int:
        """Changed by the owner from time to time."""

    @property
    def number(self) -> int:
        """The number of the owner's last commit."""

    @property
    def session(self) -> bool:
        """Return whether the owner has a session at the database."""

    @property
    def waits(self) -> bool:
        """Return whether a commit of the owner waits for the database's synchronous standby."""


class ShardView(Protocol):
    """The row of one shard, over a connection of its own. The methods raise UnreachableError and BadDatabase."""

    def observe(self) -> RowView:
        """Return the row as it is now."""

    def claim(self, epoch: int, node: str, address: str) -> int | None:
        """Make this node the owner if the epoch is still `epoch`, and return the new one; None: another was quicker.

        After an error the row may be this node's, and is left to be claimed again.
        """

    def beat(self, epoch: int) -> bool:
        """Give a sign of life in place of a commit; False: another node has taken over."""

    def bequeath(self, epoch: int, heir: str) -> bool:
        """Write the heir in place of the address, for when the row is released. Return whether the epoch lasted."""

    def close(self) -> None:
        """Close the connection. Never raises."""
