"""Finds cycles of dead-letter exchanges in which messages would go round forever, or be dropped.

A cycle with a queue in which messages wait (they expire there, and are rejected elsewhere) is how retries are made. So
a cycle is reported only if messages wait nowhere, or if they expire in all its queues: then the broker drops those that
come round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from leveret.server.topology_file.effective import DEAD_LETTER, DEAD_LETTER_KEY, EffectiveTopology
from leveret.server.topology_file.model import QUEUE, Thing

AT_ONCE = (
    "nothing waits on the way: a message that is rejected comes back at once, again and again",
    "let one of the queues hold messages for a while (message-ttl), or send dead letters elsewhere",
)
BY_ITSELF = (
    "every queue of it lets messages expire: one that has come round without being rejected is dropped",
    "let one of the queues have no message-ttl, or send dead letters elsewhere",
)


def dead_letter_cycles(seen: EffectiveTopology) -> Iterator[tuple[list[Thing], tuple[str, str]]]:
    """Yield the queues of each reported cycle (one for each strongly connected set of queues), and why."""
    for cycle in _rings({each.key[1:]: _following(each, seen) for each in seen.topology.of(QUEUE)}):
        queues = [seen.topology.things[QUEUE, *at] for at in cycle]
        waits = [seen.setting(each, "message-ttl") is not None for each in queues]
        if not any(waits):
            yield queues, AT_ONCE
        elif all(waits):
            yield queues, BY_ITSELF


def _following(queue: Thing, seen: EffectiveTopology) -> set[Node]:
    """Return the queues that dead letters of this one may reach."""
    exchange, key = seen.setting(queue, DEAD_LETTER), seen.setting(queue, DEAD_LETTER_KEY)
    if exchange is None:
        return set()
    if exchange == "":  # without a dead-letter key, a message published to the queue has its name as the key
        names = {queue.name if key is None else str(key)}
    else:
        names = seen.led_to(queue.host, str(exchange), None if key is None else str(key))
    return {(queue.host, name) for name in names if seen.is_there(QUEUE, queue.host, name)}


Node: TypeAlias = tuple[str, ...]
Graph: TypeAlias = dict[Node, set[Node]]


def _rings(following: Graph) -> Iterator[list[Node]]:
    """Yield a shortest cycle for each strongly connected set of nodes, from its first node by name."""
    told: set[Node] = set()
    for start in sorted(leading_on(following)):
        ring = None if start in told else _round(start, following)
        if ring is not None:
            told.update(ring)
            yield ring


def leading_on(following: Graph) -> set[Node]:
    """Return the nodes from which endless paths start, in one pass; none if there are no cycles."""
    before: dict[Node, list[Node]] = defaultdict(list)
    for node, nexts in following.items():
        for each in nexts:
            before[each].append(node)
    open_ends = {node: len(nexts) for node, nexts in following.items()}
    left = [node for node, count in open_ends.items() if not count]
    while left:
        for each in before[left.pop()]:
            open_ends[each] -= 1
            if not open_ends[each]:
                left.append(each)
    return {node for node, count in open_ends.items() if count}


def _round(start: Node, following: Graph) -> list[Node] | None:
    """Return a shortest path from a node back to itself, or None."""
    came_from: dict[Node, Node] = {}
    left = [start]
    while left:
        coming = []
        for node in left:
            for each in sorted(following[node]):
                if each == start:
                    return _way(start, node, came_from)
                if each not in came_from:
                    came_from[each] = node
                    coming.append(each)
        left = coming
    return None


def _way(start: Node, last: Node, came_from: dict[Node, Node]) -> list[Node]:
    way = [last]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]
