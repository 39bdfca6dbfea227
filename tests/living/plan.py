"""What a seed decides about a round: the queues, how they are filled and read, and what memory the node has."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from leveret.protocols.amqp091.codec.wire import FieldTable, UInt8

EXCHANGE: Final = "amq.fanout"
HIGHEST: Final = 3
PRIORITIES: Final = (None, 1, 2, 5)
DEAD: Final = {"x-dead-letter-exchange": ""}
ASIDE: Final = "aside"  # published to by itself
# What stands beside the ones of the exchange, and gets what leaves them.
HEIRS: Final = {"work": "dead", "brief": "expired"}
USUAL: Final = ("plain", "second")
# With these, a round costs seconds more.
SPECIAL: Final = ("ranked", "work", "brief", "quorum", "selected", "leased", "lake")
STREAM: Final = "log"  # read in bulk all the time
RANKED: Final = ("ranked", "quorum")
SHUFFLED: Final = ("dead", "lake")
SIZES: Final = (
    (100, 1000),
    (1000, 1000, 4000),
    (2000,),
    (0, 100, 2000, 20_000),
)  # octets, of which chance takes one


@attrs.frozen
class Plan:
    """One round."""

    engine: str
    queues: tuple[str, ...]  # of the exchange; a stream may be one of them
    groups: tuple[tuple[str, ...], ...]  # queues that are drained at once, one group after the other
    ttl_ms: int  # of the queue `brief`
    window: int  # messages that a publisher has unconfirmed
    sizes: tuple[int, ...]
    has_more: bool  # the same queues are published to while they are drained
    merging: int  # messages that are published aside before queues are drained
    is_hoarding: bool  # the first node rewrites no chunks, and leaves them to the living one
    is_eager: bool  # the living node rewrites chunks after few commits, and few of them at a time
    is_slow: bool  # each of its readings of the store takes a moment, as on a slow disk
    is_poor: bool  # the living node has hardly any memory for messages
    is_holding: bool  # a consumer of the first node has messages when that is killed

    @classmethod
    def chosen(cls, chance: random.Random, engine: str) -> Plan:
        special = chance.sample(SPECIAL, chance.randrange(1, 4))
        queues = (*USUAL, *special)
        groups = _groups(chance, queues)
        return cls(
            engine,
            (*queues, *[STREAM] * (chance.random() < 0.7)),
            groups,
            chance.randrange(500, 5000),
            chance.choice((1, 10, 10, 50)),
            chance.choice(SIZES),
            chance.random() < 0.5,
            chance.choice((0, 100, 100)),
            chance.random() < 0.7,
            chance.random() < 0.7,
            chance.random() < 0.7,
            chance.random() < 0.5,
            chance.random() < 0.3,
        )

    @property
    def declared(self) -> Mapping[str, FieldTable]:
        """Return all queues and their arguments."""
        known: dict[str, FieldTable] = {
            "ranked": {"x-max-priority": UInt8(HIGHEST)},
            "work": {**DEAD, "x-dead-letter-routing-key": "dead"},
            "brief": {**DEAD, "x-dead-letter-routing-key": "expired", "x-message-ttl": self.ttl_ms},
            "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000},
            STREAM: {"x-queue-type": "stream"},
        }
        names = (*self.queues, ASIDE, *(HEIRS[each] for each in self.queues if each in HEIRS))
        return {name: known.get(name, {}) for name in names}

    @property
    def targets(self) -> Sequence[str]:
        """Return the queues from which each message of the exchange has to come, unless it is rejected."""
        return ["expired" if each == "brief" else each for each in self.queues]

    def __str__(self) -> str:
        groups = ", then ".join(" and ".join(each) for each in self.groups)
        said = [
            f"{self.engine}: {groups}{' beside readers of a stream' * (STREAM in self.queues)}",
            f"window {self.window}",
            f"sizes {min(self.sizes)} to {max(self.sizes)}",
        ]
        for name in ("has_more", "is_hoarding", "is_eager", "is_slow", "is_poor", "is_holding"):
            said += [name.partition("_")[2]] * getattr(self, name)
        return "; ".join(said)


def _groups(chance: random.Random, queues: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the queues in some order: all at once, one after the other, or some at once."""
    left = chance.sample(queues, len(queues))
    size = chance.choice((1, 1, 2, len(left)))
    return tuple(tuple(left[at : at + size]) for at in range(0, len(left), size))
