"""Clients of AMQP 0-9-1, with channels that confirm, have transactions, or neither."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method
from tests.amqp091.peer import Content, Peer

from .client import Client, Moves

if TYPE_CHECKING:
    from .place import Place

CONSUMERS_MAX = 3  # on a channel


@attrs.define
class Channel:
    """What a client knows of its channel."""

    mode: str  # confirm, tx or plain
    published: int = 0
    waiting: dict[int, bytes] = attrs.field(factory=dict)  # for a confirm, by number
    unacked: dict[int, bytes] = attrs.field(factory=dict)  # by delivery tag
    given_to: dict[int, str] = attrs.field(factory=dict)  # the consumers of these
    consumers: dict[str, bool] = attrs.field(factory=dict)  # by tag: whether it acknowledges
    fetches_settled: bool = False  # the get that waits for its answer
    published_in: list[bytes] = attrs.field(factory=list)  # the transaction
    acked_in: dict[int, bytes] = attrs.field(factory=dict)
    rejected_in: dict[int, bytes] = attrs.field(factory=dict)

    def in_transaction(self) -> Iterable[bytes]:
        return (*self.published_in, *self.acked_in.values(), *self.rejected_in.values())

    def roll_back(self) -> None:
        self.unacked |= self.acked_in | self.rejected_in
        self.end_transaction()

    def end_transaction(self) -> None:
        self.published_in, self.acked_in, self.rejected_in = [], {}, {}


class Client091(Client):
    """One connection with one or two channels."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.peer = Peer(place.bench).open()
        self.channels: dict[int, Channel] = {}
        for number in (1, 2)[: self.random.choice((1, 2))]:
            self._open(number)

    def _open(self, number: int) -> None:
        self.peer.call(number, m.ChannelOpen())
        channel = self.channels[number] = Channel(self.random.choice(("confirm", "confirm", "tx", "plain")))
        if channel.mode == "confirm":
            self.peer.call(number, m.ConfirmSelect())
        elif channel.mode == "tx":
            self.peer.call(number, m.TxSelect())

    def in_transactions(self) -> Iterable[bytes]:
        for channel in self.channels.values():
            yield from channel.in_transaction()

    def moves(self) -> Moves:
        self.number = self.random.choice([*self.channels])
        self.channel = self.channels[self.number]
        return {
            self._publish: 30,
            self._consume: 8,
            self._get: 5,
            self._ack: 20,
            self._nack: 16,
            self._cancel: 3,
            self._limit: 3,
            self._recover: 1,
            self._end_transaction: 8,
            self._reopen: 1,
        }

    def _send(self, method: Method) -> None:
        self.peer.send(self.number, method)

    # What it does.

    def _publish(self) -> None:
        for _ in range(self.random.choice((1, 1, 2, 5, 20))):
            if self.is_over or self.channels.get(self.number) is not self.channel:
                return
            self._publish_one(*self.place.publishing())
        self.place.bench.settle()

    def _publish_one(self, queue: str, body: bytes) -> None:
        random, channel = self.random, self.channel
        headers: dict[str, object] = {}
        if self.chance(0.3):
            headers["x-delay"] = random.choice((0, 300, 2000))
        for name in ("group", "value"):
            if self.chance(0.5):
                headers[name] = random.choice("ab")
        properties = BasicProperties(
            delivery_mode=2,
            expiration=random.choice((None, None, None, "0", "500", "5000")),
            priority=random.choice((None, None, 1, 5)),
            headers=headers or None,
        )
        exchange = random.choice(("", "", "direct"))
        channel.published += 1
        if channel.mode == "confirm":
            channel.waiting[channel.published] = body
        elif channel.mode == "tx":
            channel.published_in.append(body)
        out: list[bytes] = []
        method = m.BasicPublish(exchange, queue, self.chance(0.1), False).encode()
        wire.append_content(out, self.number, method, properties.encode(), body, 131_072)
        self.peer.send_bytes(b"".join(out), self.chance(0.5))

    def _consume(self) -> None:
        if len(self.channel.consumers) == CONSUMERS_MAX:
            return
        tag, settled = self.place.name("consumer"), self.chance(0.1)
        self.channel.consumers[tag] = settled
        arguments = {"x-priority": self.random.choice((1, 5))} if self.chance(0.3) else {}
        exclusive = self.chance(0.05)
        self._send(
            m.BasicConsume(self.place.queue(), tag, no_ack=settled, exclusive=exclusive, arguments=arguments)
        )

    def _get(self) -> None:
        self.channel.fetches_settled = self.chance(0.3)
        self._send(m.BasicGet(self.place.queue(), self.channel.fetches_settled))

    def _taken(self, multiple: bool) -> tuple[int, dict[int, bytes]]:
        """Return a delivery tag, and what it stands for, which is not unacknowledged any more."""
        unacked = self.channel.unacked
        tag = self.random.choice([*unacked])
        taken = {each: body for each, body in unacked.items() if each == tag or (multiple and each < tag)}
        for each in taken:
            del unacked[each]
        return tag, taken

    def _ack(self) -> None:
        if not self.channel.unacked:
            return
        multiple = self.chance(0.3)
        tag, taken = self._taken(multiple)
        if self.channel.mode == "tx":
            self.channel.acked_in |= taken
        else:
            for body in taken.values():
                self.ledger.settle(body)
        self._send(m.BasicAck(tag, multiple))

    def _nack(self) -> None:
        if not self.channel.unacked:
            return
        multiple, requeue = self.chance(0.2), self.chance(0.5)
        tag, taken = self._taken(multiple)
        if self.channel.mode == "tx":
            self.channel.rejected_in |= taken
        self._send(
            m.BasicNack(tag, multiple, requeue)
            if self.chance(0.5) or multiple
            else m.BasicReject(tag, requeue)
        )

    def _cancel(self) -> None:
        if self.channel.consumers:
            self._send(m.BasicCancel(self.random.choice([*self.channel.consumers])))

    def _limit(self) -> None:
        self._send(m.BasicQos(0, self.random.choice((0, 1, 2, 10)), self.chance(0.3)))

    def _recover(self) -> None:
        if self.channel.mode != "tx":
            self.channel.unacked.clear()
            self._send(m.BasicRecover(True))

    def _end_transaction(self) -> None:
        if self.channel.mode == "tx":
            self._send(m.TxCommit() if self.chance(0.7) else m.TxRollback())

    def _reopen(self) -> None:
        self._send(m.ChannelClose(200, "bye", 0, 0))
        self._open(self.number)

    # What it hears.

    def hear(self) -> None:
        self.peer.read()
        while self.peer.received:
            number, what = self.peer.received.popleft()
            if isinstance(what, m.ConnectionClose):
                self.is_over = True
            elif number in self.channels:
                self._heard(number, self.channels[number], what)
            self.peer.read()

    def _heard(self, number: int, channel: Channel, what: Method | Content) -> None:
        if isinstance(what, Content):
            self._given(channel, what)
        elif isinstance(what, m.BasicAck | m.BasicNack):
            is_taken = isinstance(what, m.BasicAck)
            last, waiting = what.delivery_tag, channel.waiting
            for tag in [each for each in waiting if each == last or (what.multiple and each < last)]:
                body = waiting.pop(tag)
                if is_taken:
                    self.ledger.confirmed.add(body)
        elif isinstance(what, m.BasicCancel):  # what the consumer had is in the queue again
            channel.consumers.pop(what.consumer_tag, None)
            for tag in [each for each in channel.unacked if channel.given_to.get(each) == what.consumer_tag]:
                del channel.unacked[tag]
        elif isinstance(what, m.BasicCancelOk):
            channel.consumers.pop(what.consumer_tag, None)
        elif isinstance(what, m.TxCommitOk):
            self.ledger.confirmed.update(channel.published_in)
            for body in channel.acked_in.values():
                self.ledger.settle(body)
            channel.end_transaction()
        elif isinstance(what, m.TxRollbackOk):
            channel.roll_back()
        elif isinstance(what, m.ChannelClose):
            if "partial tx completion" in what.reply_text:
                self.ledger.excuse(channel.in_transaction())
            self.peer.send(number, m.ChannelCloseOk())
            self._open(number)

    def _given(self, channel: Channel, content: Content) -> None:
        method, body = content.method, content.body
        if isinstance(method, m.BasicReturn):
            self.ledger.excuse([body])
            return
        self.ledger.came(body)
        if isinstance(method, m.BasicDeliver):
            settled = channel.consumers.get(method.consumer_tag, False)
            channel.given_to[method.delivery_tag] = method.consumer_tag
        else:
            assert isinstance(method, m.BasicGetOk)
            settled = channel.fetches_settled
        if settled:
            self.ledger.settle(body)
        else:
            channel.unacked[method.delivery_tag] = body

    def leave(self) -> None:
        if not self.is_over:
            self.hear()
        self.peer.drop()
