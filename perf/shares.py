"""Give each publisher and consumer its part of a plan, in either protocol."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import Final

from leveret.perf.block import Block, Pattern
from leveret.perf.ends import ENDLESS, ConsumerEnd, PublisherEnd, Tally
from leveret.perf.pace import Pace
from leveret.perf.plan import Plan
from leveret.perf.sequence_check import SequenceCheck

SeenBy = list[tuple[str, SequenceCheck]]  # of each subscription, with the queue
CYCLE_MAX: Final = 1024  # kinds of messages of one publisher


def cycle_of(plan: Plan, publisher: int) -> list[tuple[str, int]]:
    """Return keys and sizes of a publisher's messages, in turn: every key with every size."""
    return [
        (key, size) for size, key in islice(product(plan.sizes.octets, plan.keys_of(publisher)), CYCLE_MAX)
    ]


def body_of(plan: Plan, publisher: int, size: int) -> bytes:
    """Return the constant part of a body: the publisher's number, and filling."""
    start = bytes(8) + publisher.to_bytes(4, "little") + bytes(8) if plan.verify else b""
    return start + b"x" * (size - len(start))


def subscription(plan: Plan, number: int, tally: Tally, seen: SeenBy) -> ConsumerEnd:
    """Return a consumer of a queue. If each message comes once, it does not matter which queue it came from."""
    queue = plan.queue(number)
    mine = SequenceCheck() if plan.verify else None
    if mine is not None:
        seen.append(("" if plan.copies == 1 and not plan.exchange else queue, mine))
    return ConsumerEnd(queue, tally, plan.ack_every, int(plan.think_s * 1e9), mine)


def source(plan: Plan, patterns: Sequence[Pattern], block_max: int, tally: Tally) -> PublisherEnd:
    """Return a publisher with these messages, in turn."""
    block = Block(patterns, block_max, plan.verify)
    pacing = Pace(plan.rate) if plan.rate else None
    at_once = 1 if plan.single_writes else ENDLESS
    return PublisherEnd(block, tally, plan.messages or ENDLESS, plan.confirms, pacing, at_once)
