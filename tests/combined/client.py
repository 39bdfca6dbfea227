"""A client in a run: it does something at random, hears what has come, and goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .place import Place

Moves: TypeAlias = "Mapping[Callable[[], None], int]"  # with their weights


class Client(ABC):
    """One connection of any protocol."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.random = place.random
        self.ledger = place.ledger
        self.is_over = False  # the broker has ended it, or it has gone

    @abstractmethod
    def moves(self) -> Moves:
        """Return what it may do now."""

    @abstractmethod
    def hear(self) -> None:
        """Work in what the broker has sent."""

    @abstractmethod
    def leave(self) -> None:
        """Break the connection off, after it has heard what has come."""

    def in_transactions(self) -> Iterable[bytes]:
        """Return the messages that it has published or settled in transactions that have not ended."""
        return ()

    def step(self) -> None:
        moves = self.moves()
        [move] = self.random.choices([*moves], [*moves.values()])
        move()
        if not self.is_over:
            self.hear()

    def chance(self, share: float) -> bool:
        return self.random.random() < share
