"""Define what a node sees of the cluster in which it is the one that serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from socket import socket as Socket  # noqa: N812

from leveret.operations import Clustering


class Term(Clustering, ABC):
    """The time in which a node serves, from its takeover to the next one."""

    doors: Sequence[Socket]  # listen for the clients that other nodes pass on; the node closes them

    @abstractmethod
    def has_lapsed(self) -> bool:
        """Return whether another node may have taken over by now: nothing may be handed out any more."""

    @abstractmethod
    def listener_of(self, header: bytes) -> str:
        """Return the listener that the header of another node's client names. Raises BadHeader."""
