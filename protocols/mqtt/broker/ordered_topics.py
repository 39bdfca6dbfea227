"""Topics in the order of their characters, in blocks: to be found by what they begin with, a few at a time.

A million topics are two thousand blocks, and each takes some ten bytes here. What is added or removed moves the rest of
one block. A search goes on behind the last topic that it has seen, so that topics may come and go meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

BLOCK_MAX: Final = 1024  # topics


class OrderedTopics:
    """A set of topics in order."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._firsts: list[str] = []  # of each block

    def add(self, topic: str) -> None:
        """Add a topic, which must not be there."""
        if not self._blocks:
            self._blocks.append([topic])
            self._firsts.append(topic)
            return
        at = max(0, bisect_right(self._firsts, topic) - 1)
        block = self._blocks[at]
        insort(block, topic)
        if len(block) > BLOCK_MAX:
            half = len(block) // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._firsts.insert(at + 1, block[half])
        self._firsts[at] = self._blocks[at][0]

    def remove(self, topic: str) -> None:
        """Remove a topic, which must be there."""
        at = bisect_right(self._firsts, topic) - 1
        block = self._blocks[at]
        del block[bisect_left(block, topic)]
        if block:
            self._firsts[at] = block[0]
        else:
            del self._blocks[at], self._firsts[at]

    def since(self, start: str, count: int) -> list[str]:
        """Return some topics from `start` on, at most `count`, in order; none if there are none."""
        at = max(0, bisect_right(self._firsts, start) - 1)
        while at < len(self._blocks):
            block = self._blocks[at]
            place = bisect_left(block, start)
            if place < len(block):
                return block[place : place + count]
            at += 1
        return []
