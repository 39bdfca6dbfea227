"""kill -9 while clients publish and receive over links with the durability `unsettled-state`, and come back to them.

A sender publishes numbers and settles second; two receivers share the queue and settle second. After each kill they
attach again with their maps of unsettled deliveries, and go on: each number is published and worked at exactly once.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp10.client import SENDER, Receiver, Sender
from tests.amqp10.parts import Delivery, data
from tests.amqp10.peer import SECOND
from tests.amqp10.test_recovery import known_to, resume
from tests.harness.seldom import one_feature

from .line import Line091, Line10, wait_for
from .node import Node, damage_in

pytestmark = pytest.mark.system

ROUNDS: Final = 3
WINDOW: Final = 100  # messages that the sender has not settled
CREDIT: Final = 20
STATE: Final = p.TERMINUS_DURABILITY_UNSETTLED_STATE


def tag(number: int) -> bytes:
    return b"%d" % number


class Publishing:
    """A client that publishes 0, 1, 2, ..., and publishes again what the node does not know of."""

    def __init__(self, chance: random.Random) -> None:
        self.following = 0
        self.unsettled: dict[int, tuple[int, p.DeliveryState | None]] = {}  # ids and states, by number
        self.known = self.repeated = 0
        self._chance = chance

    def begin(self, line: Line10) -> None:
        self.line, self.sender = line, Sender(line.session, "s")
        target = p.Target(address="/queues/q", durable=STATE, expiry_policy=Symbol("never"))
        said = {tag(number): state for number, (_, state) in self.unsettled.items()}
        line.session.attach(
            self.sender,
            target=target,
            rcv_settle_mode=SECOND,
            unsettled=said or None,
            initial_delivery_count=0,
        )
        line.wait(lambda: self.sender.credit > 0, "credit")
        assert self.sender.attached.target.durable == STATE
        known = known_to(self.sender) or {}
        for number, (_, state) in list(self.unsettled.items()):
            if tag(number) in known:
                self.known += 1
                resume(self.sender, tag(number), settled=True)
                del self.unsettled[number]
            else:
                assert state is None, f"{number} was accepted, and is not known"
                self.repeated += 1
                self._send(number)

    def act(self) -> None:
        while self.sender.credit > 0 and len(self.unsettled) < WINDOW:
            self._send(self.following)
            self.following += 1

    def _send(self, number: int) -> None:
        sections = p.Header(durable=True), data(b"%d" % number)
        self.unsettled[number] = self.sender.send(*sections, tag=tag(number)), None

    def hear(self) -> None:
        """Settle most of what was accepted."""
        for number, (id, _) in list(self.unsettled.items()):
            state = self.line.session.outcomes.get(id)
            self.unsettled[number] = id, state
            if state is not None and self._chance.random() < 0.9:
                assert isinstance(state, p.Accepted), state
                self.line.session.dispose(state, id, role=SENDER)
                del self.unsettled[number]


class Working:
    """A client that works at each delivery, accepts it, and remembers it until the node has settled it."""

    def __init__(self, name: str, chance: random.Random, done: Counter[int]) -> None:
        self.name, self.done = name, done
        self.unsettled: dict[bytes, tuple[Delivery | None, bool]] = {}  # by tag; whether it has worked at it
        self.resumed = 0
        self._chance = chance

    def begin(self, line: Line10) -> None:
        self.line, self.link = line, Receiver(line.session, self.name)
        source = p.Source(
            address="/queues/q", durable=STATE, expiry_policy=Symbol("connection-close"), timeout=60
        )
        said = {each: p.Accepted() if worked else None for each, (_, worked) in self.unsettled.items()}
        line.session.attach(
            self.link,
            source=source,
            target=p.Target(address="here"),
            rcv_settle_mode=SECOND,
            unsettled=said or None,
        )
        line.wait(lambda: self.link.attached, "an attach")
        assert self.link.attached.source.durable == STATE
        told = self.link.attached.unsettled or {}
        self.resumed += len(told)
        self.unsettled = {
            each: (None, worked) for each, (_, worked) in self.unsettled.items() if each in told
        }
        self.link.want(CREDIT + len(told))

    def hear(self) -> None:
        deliveries, self.link.deliveries = list(self.link.deliveries), type(self.link.deliveries)()
        for each in deliveries:
            if each.settled:
                del self.unsettled[each.tag]
            else:
                self.unsettled[each.tag] = each, self.unsettled.get(each.tag, (None, False))[1]
        for each, (delivery, worked) in list(self.unsettled.items()):
            if delivery is None:
                continue
            if worked and delivery.id in self.line.session.told:
                del self.unsettled[each]
            elif not worked and self._chance.random() < 0.8:
                self.done[int(delivery.body)] += 1
                self.unsettled[each] = delivery, True
                self.link.answer(p.Accepted(), delivery, settled=False)
        if self.link.credit < CREDIT // 2:
            self.link.want(CREDIT)


@pytest.mark.timeout(300)
@one_feature
@pytest.mark.parametrize("seed", [5])
def test_each_message_is_published_and_worked_at_exactly_once(seed: int, tmp_path: Path) -> None:
    chance, folder, done = random.Random(seed), tmp_path / "data", Counter[int]()
    sender, receivers = Publishing(chance), [Working(name, chance, done) for name in ("r0", "r1")]
    clients = [sender, *receivers]

    def go_on(line: Line10) -> None:
        line.pump()
        wait_for([line], 0.05)
        for each in clients:
            each.hear()

    for _ in range(ROUNDS):
        node = Node(folder)
        try:
            declaring = Line091(node.port)
            declaring.channel(9)
            declaring.call(9, m.QueueDeclare("q", durable=True))
            declaring.drop()
            line = Line10(node.port)
            for each in clients:
                each.begin(line)
            until = sender.following + chance.randrange(50, 400)
            while sender.following < until:
                sender.act()
                go_on(line)
        finally:
            node.kill()
        line.drop()
    node = Node(folder)
    try:
        line = Line10(node.port)
        for each in clients:
            each.begin(line)
        while sender.unsettled or any(each.unsettled for each in receivers) or len(done) < sender.following:
            go_on(line)
        assert done == Counter(range(sender.following))
        assert sender.known > 0
        assert sum(each.resumed for each in receivers) > 0
        line.drop()
        node.stop()
    finally:
        node.kill()
    assert damage_in(folder) == []
