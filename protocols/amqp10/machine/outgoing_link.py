"""The sending side of an AMQP 1.0 session: links on which the peer receives, its window, and unsettled deliveries.

Credit is counted in deliveries, and the peer grants it: `send` uses it up. The window is counted in transfers, of which
a large message takes several. Messages beyond it wait in the backlog, in order; and so does a flow about a link that
has something in there, as its delivery-count would be ahead.

A message gets its delivery id when its first transfer is sent. So the ids have no gaps when a link ends that has
messages waiting: to Qpid Proton and rhea a gap is an error that ends the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import SESSION, AmqpError
from leveret.protocols.amqp10.codec.wire import (
    FRAME_AMQP,
    FRAME_OVERHEAD,
    FRAME_START,
    HALF,
    MASK,
    OFFSET_MIN,
    SETTLED,
    SETTLED_END,
    UNSETTLED,
    UNSETTLED_END,
    TransferHead,
    continuation,
    cut,
    distance,
)
from leveret.protocols.amqp10.machine.contract import ENDED_OUTGOING, OutgoingOwner
from leveret.protocols.amqp10.machine.link import Link, SourceLike, States, TargetLike, map_of
from leveret.protocols.shared.machine.numbered_table import NumberedTable

if TYPE_CHECKING:
    from leveret.protocols.amqp10.codec.types import Value
    from leveret.protocols.amqp10.machine.session import Session


RANGE_MAX: Final = 10_000  # deliveries that a disposition covers before other connections have a turn: 5 ms

Told: TypeAlias = tuple[int, int, int, bool]  # of a link: delivery-count, link-credit, available, drain


class OutgoingLink(Link):
    """A link on which the peer receives."""

    __slots__ = (
        "_front",
        "_front_size",
        "_head",
        "_outbox",
        "_sending",
        "_whole_max",
        "drain",
        "message_size_max",
        "owner",
        "settled",
        "tag_prefix",
        "tags",
        "unsent",
        "unsent_tags",
        "unsettled",
        "waiting",
    )

    owner: OutgoingOwner

    def __init__(self, session: Session, attach: p.Attach) -> None:
        super().__init__(session, attach)
        self.drain = False
        # Whether the peer asked for settled messages.
        self.settled = self.snd_settle_mode == p.SENDER_SETTLE_MODE_SETTLED
        self.message_size_max = int(attach.max_message_size or 0)  # the peer's; 0 is no limit
        self.unsettled: NumberedTable[object] = NumberedTable()  # tokens by delivery id
        self.unsent: deque[object] = deque()  # the tokens of waiting messages that are sent unsettled
        self.waiting: Waiting | None = None  # the last item of the link in the backlog
        self.tag_prefix = b""  # of delivery tags; for the owner to set before it attaches
        self.tags: dict[int, bytes] = {}  # of deliveries with tags of the owner's, by id
        self.unsent_tags: dict[object, bytes] = {}  # of those that wait to be sent, by token
        self._front = b""  # the beginning of frames of `_front_size` bytes
        self._front_size = 0
        self._outbox = session.connection.outbox
        self._sending = session.sending

    def end(self, closed: bool) -> None:
        self._whole_max = -1  # a later message takes the slow path, which drops it
        super().end(closed)

    def _find_owner(self, attach: p.Attach) -> None:
        self.owner = self.session.owner.on_attach_outgoing(self, attach)

    def _tell_owner(self) -> None:
        owner, self.owner = self.owner, ENDED_OUTGOING
        owner.on_detached([*self.unsettled.values(), *self.unsent], self._closed)

    def _begin(self) -> None:
        """Do nothing: nothing is sent before the peer's first flow."""

    def _attach(
        self,
        source: SourceLike,
        target: TargetLike,
        properties: Mapping[str, Value] | None,
        offered_capabilities: Sequence[str],
        unsettled: States | None,
    ) -> p.Attach:
        self._head = TransferHead(self.session.channel, self.handle, self.tag_prefix)
        self._whole_max = self.session.connection.frame_size_max - self._head.size
        return p.Attach(
            name=self.name,
            handle=self.handle,
            role=p.ROLE_SENDER,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=source,
            target=target,
            unsettled=map_of(unsettled),
            initial_delivery_count=self.delivery_count,
            offered_capabilities=offered_capabilities,
            properties=properties,
        )

    def credit_told(self) -> int:
        return max(0, self.credit)

    def drain_told(self) -> bool:
        return self.drain

    def _take_flow(self, flow: p.Flow) -> None:
        if flow.properties is not None and "txn-id" in flow.properties:
            raise AmqpError(p.NOT_IMPLEMENTED, "transactional acquisition is not supported")
        before = self.credit, self.drain
        if flow.link_credit is not None:
            # A receiver that has not seen our attach counts from the beginning.
            sent = distance(self.delivery_count, flow.delivery_count or 0)
            self.credit = min(max(0, flow.link_credit - sent), MASK)
        self.drain = flow.drain
        if before != (self.credit, self.drain) or self.drain or flow.echo:
            self.owner.on_credit(self)

    def drained(self) -> None:
        """Void the remaining credit, because there is nothing (more) to send, and send a flow (S180)."""
        if not self.ended:
            self.delivery_count = self.delivery_count + self.credit & MASK
            self.credit = 0
            self.session.say_flow(self)

    def say(self, properties: Mapping[str, Value]) -> None:
        """Send a flow with properties of the link's state, which must have no messages that wait in the session."""
        if not self.ended:
            self.session.say_properties(self, properties)

    def send(self, token: object, pieces: list[bytes], size: int, settled: bool) -> None:
        """Send a message, the bytes of `pieces`, `size` in all. It takes one credit.

        Unless `settled`, `token` is returned with its outcome. A message beyond the peer's window waits in the session.
        """
        sending = self._sending
        self.credit -= 1
        self.delivery_count = self.delivery_count + 1 & MASK
        if size > self._whole_max or sending.window < 1 or sending.backlog:
            if not self.ended:
                if not settled:
                    self.unsent.append(token)
                sending.send(Waiting(self, pieces, size, settled))
            return
        delivery_id = sending.next_delivery_id
        sending.next_delivery_id = delivery_id + 1 & MASK
        if not settled:
            sending.unsettled.add(delivery_id, self)
            self.unsettled.add(delivery_id, token)
        head = self._head
        sending.window -= 1
        sending.next_outgoing_id = sending.next_outgoing_id + 1 & MASK
        octets = size + head.size
        end = SETTLED if settled else UNSETTLED
        out = self._outbox.open()
        out.append(head.pack(octets, head.start, delivery_id, head.tag_begin, delivery_id, end))
        out += pieces
        self._outbox.wrote(octets)

    def send_all(
        self,
        tokens: list[object],
        begins: list[bytes],
        bares: list[bytes],
        bodies: list[bytes],
        settled: bool,
    ) -> None:
        """Send messages as `send` would, each in three parts. The first is often that of the message before."""
        sending, outbox, head = self._sending, self._outbox, self._head
        end = SETTLED_END if settled else UNSETTLED_END
        tag_begin = head.tag_begin
        written, last, close = 0, b"", end
        first, noted = sending.next_delivery_id, 0  # the next delivery to note, by its id and its place
        out = outbox.open()
        for at, body in enumerate(bodies):
            begin, bare = begins[at], bares[at]
            size = len(begin) + len(bare) + len(body)
            if size > self._whole_max or sending.window < 1 or sending.backlog:
                outbox.wrote(written)
                written = 0
                if not settled:
                    self._note(first, tokens[noted:at])
                self.send(tokens[at], [begin, bare, body], size, settled)
                first, noted = sending.next_delivery_id, at + 1
                out = outbox.open()
                continue
            if begin is not last:
                last, close = begin, end + begin
            delivery_id = sending.next_delivery_id
            sending.next_delivery_id = delivery_id + 1 & MASK
            sending.window -= 1
            sending.next_outgoing_id = sending.next_outgoing_id + 1 & MASK
            self.credit -= 1
            self.delivery_count = self.delivery_count + 1 & MASK
            size += head.size
            if size != self._front_size:
                self._front_size = size
                self._front = size.to_bytes(4, "big") + head.start
            number = delivery_id.to_bytes(4, "big")
            out.append(self._front)
            out.append(number)
            out.append(tag_begin)
            out.append(number)
            out.append(close)
            if bare:
                out.append(bare)
            out.append(body)
            written += size
        if not settled:
            self._note(first, tokens[noted:] if noted else tokens)
        outbox.wrote(written)

    def _note(self, first: int, tokens: list[object]) -> None:
        """Note deliveries that were sent unsettled, with the ids from `first` on."""
        before_wrap = MASK + 1 - first
        if len(tokens) > before_wrap:
            self._note(first, tokens[:before_wrap])
            first, tokens = 0, tokens[before_wrap:]
        if tokens:
            self._sending.unsettled.add_all(first, [self] * len(tokens))
            self.unsettled.add_all(first, tokens)

    def resume(
        self, token: object, tag: bytes, pieces: list[bytes], size: int, settled: bool, aborted: bool = False
    ) -> None:
        """Go on with a delivery of an earlier link of that name (part 2, section 2.6.13), as `send` would.

        `pieces`: the rest of the message. `aborted`: the peer forgets the delivery, which is `settled`.
        """
        self._send_tagged(token, Tagged(self, tag, pieces, size, settled, True, aborted))

    def send_tagged(self, token: object, tag: bytes, pieces: list[bytes], size: int) -> None:
        """Send a message unsettled, as `send` would, under a delivery tag of the owner's."""
        self._send_tagged(token, Tagged(self, tag, pieces, size, settled=False))

    def _send_tagged(self, token: object, message: Tagged) -> None:
        self.credit -= 1
        self.delivery_count = self.delivery_count + 1 & MASK
        if not self.ended:
            if not message.settled:
                self.unsent.append(token)
                self.unsent_tags[token] = message.tag
            self._sending.send(message)

    def left(self) -> list[tuple[object, bytes]]:
        """Return the unsettled deliveries that the peer may have seen, as their tokens and delivery tags."""
        tags, tag_of = self.tags, self._head.tag
        sent = [(token, tags.get(id) or tag_of(id)) for id, token in self.unsettled.items()]
        return [*sent, *self.unsent_tags.items()]

    def begin(self, size: int, settled: bool) -> bytes:
        """Give an id to the first waiting message, which is sent now; return the beginning of its first transfer."""
        return self._head.body(self.next_id(settled), settled, more=size > self._whole_max)

    def next_id(self, settled: bool) -> int:
        """Give an id to the first waiting message, which is sent now."""
        sending = self._sending
        delivery_id = sending.next_delivery_id
        sending.next_delivery_id = delivery_id + 1 & MASK
        if not settled:
            sending.unsettled.add(delivery_id, self)
            self.unsettled.add(delivery_id, self.unsent.popleft())
        return delivery_id

    def take_outcomes(self, ids: Sequence[int], state: p.DeliveryState | None, settled: bool) -> None:
        """Pass the peer's state of unsettled deliveries of this link to the owner. Raises no AmqpError."""
        if settled:
            tokens = self.unsettled.take(ids)
            self._sending.unsettled.take(ids)
            if self.tags:
                self._forget_tags(ids)
        else:
            tokens = [self.unsettled.get(each) for each in ids]
        try:
            self.owner.on_outcomes(ids, tokens, state, settled)
        except AmqpError as error:
            self.fail(error)

    def settle(self, ids: Sequence[int], state: p.DeliveryState | None = None) -> None:
        """Settle deliveries that the peer left unsettled; the next flush sends that. Ended ones are ignored."""
        for each in ids:
            if not self.ended and self.unsettled.pop(each) is not None:
                self._sending.unsettled.pop(each)
                self.session.answer(p.ROLE_SENDER, each, True, state)
        if self.tags:
            self._forget_tags(ids)

    def _forget_tags(self, ids: Sequence[int]) -> None:
        for each in ids:
            self.tags.pop(each, None)


class Waiting:
    """An unsent message of a link, or the unsent rest of it; or else a flow, with its values.

    A message is cut into transfers when these can be sent: until then it is just the message in its queue.
    """

    __slots__ = ("_at", "_body", "_pieces", "_size", "left", "link", "settled", "told")

    def __init__(
        self, link: OutgoingLink, pieces: list[bytes], size: int, settled: bool, told: Told | None = None
    ) -> None:
        self.link = link
        self.told = told
        self.left = True  # not everything has been sent
        self.settled = settled
        self._body = b""  # of the next transfer, if it is not the first
        self._pieces = pieces  # the whole message, of `size` bytes ...
        self._size = size
        self._at = 0  # ... and how many of these have been sent

    def transfer(self, size_max: int) -> tuple[bytes, list[bytes]]:
        """Return the next transfer and its payload, `size_max` bytes at most."""
        at, body = self._at, self._body or self._first(size_max)
        end = min(at + size_max - len(body), self._size)
        self._at, self.left = end, end < self._size
        self._body = continuation(self.link.handle, more=True)
        if self._size - end <= size_max - len(self._body):
            self._body = continuation(self.link.handle, more=False)
        return body, cut(self._pieces, at, end)

    def _first(self, size_max: int) -> bytes:
        """Return the beginning of the first transfer."""
        return self.link.begin(self._size, self.settled)


class Tagged(Waiting):
    """A delivery with a tag of the owner's, or the unsent rest of it. `resumes`: it is one of an earlier link."""

    __slots__ = ("_aborted", "_resumes", "tag")

    def __init__(
        self,
        link: OutgoingLink,
        tag: bytes,
        pieces: list[bytes],
        size: int,
        settled: bool,
        resumes: bool = False,
        aborted: bool = False,
    ) -> None:
        super().__init__(link, pieces, size, settled)
        self.tag = tag
        self._resumes = resumes
        self._aborted = aborted

    def _first(self, size_max: int) -> bytes:
        delivery_id = self.link.next_id(self.settled)
        if not self.settled:
            self.link.tags[delivery_id] = self.tag
            del self.link.unsent_tags[self.link.unsettled.get(delivery_id)]
        transfer = p.Transfer(
            handle=self.link.handle,
            delivery_id=delivery_id,
            delivery_tag=self.tag,
            message_format=0,
            settled=self.settled,
            resume=self._resumes,
            aborted=self._aborted,
        )
        whole = transfer.encode()
        if len(whole) + self._size <= size_max:
            return whole
        transfer.more = True
        return transfer.encode()


class Sending:
    """The sending half of a session."""

    __slots__ = ("_session", "backlog", "next_delivery_id", "next_outgoing_id", "unsettled", "window")

    def __init__(self, session: Session, window: int) -> None:
        self._session = session
        self.next_outgoing_id = 0
        self.next_delivery_id = 0
        self.window = window  # transfers that we may send
        self.backlog: deque[Waiting] = deque()
        self.unsettled: NumberedTable[OutgoingLink] = NumberedTable()  # by delivery id

    def room(self) -> int:
        """Return how many transfers the peer accepts now."""
        return 0 if self.backlog else self.window

    def send(self, message: Waiting) -> None:
        """Send a message in as many transfers as it takes, now or when the peer has room."""
        if not self.backlog:
            self._go_on(message)
        if message.left:
            self._wait(message)

    def _go_on(self, message: Waiting) -> None:
        """Send as much of a message as the peer has room for."""
        size_max = self._session.connection.frame_size_max - FRAME_OVERHEAD
        while self.window and message.left:
            self._put(*message.transfer(size_max))

    def _wait(self, waiting: Waiting) -> None:
        waiting.link.waiting = waiting
        self.backlog.append(waiting)

    def _put(self, body: bytes, pieces: list[bytes]) -> None:
        session = self._session
        outbox = session.connection.outbox
        size = FRAME_OVERHEAD + len(body) + sum(map(len, pieces))
        out = outbox.open()
        out.append(FRAME_START.pack(size, OFFSET_MIN, FRAME_AMQP, session.channel) + body)
        out += pieces
        outbox.wrote(size)
        self.window -= 1
        self.next_outgoing_id = self.next_outgoing_id + 1 & MASK

    def tell(self, link: OutgoingLink, told: Told) -> None:
        """Send a flow about a link, behind its waiting messages. If the last waiting item is a flow, update that."""
        if link.waiting is None:
            self._session.write_flow(link.handle, told)
        elif link.waiting.told is None:
            self._wait(Waiting(link, [], 0, True, told))
        else:
            link.waiting.told = told

    def open(self, next_incoming_id: int, incoming_window: int) -> None:
        """Set the window from the peer's flow, and send what waited for it. Raises AmqpError (X054)."""
        under_way = distance(self.next_outgoing_id, next_incoming_id)
        if under_way < 0:
            text = f"next-incoming-id {next_incoming_id} is ahead of next-outgoing-id {self.next_outgoing_id}"
            raise AmqpError(p.SESSION_WINDOW_VIOLATION, text, SESSION)
        self.window = max(0, incoming_window - under_way)
        while self.backlog:
            first = self.backlog[0]
            if first.told is not None:
                self._session.write_flow(first.link.handle, first.told)
            else:
                self._go_on(first)
                if first.left:
                    break
            self.backlog.popleft()
            if first.link.waiting is first:
                first.link.waiting = None

    def take_outcomes(self, first: int, last: int, state: p.DeliveryState | None, settled: bool) -> None:
        """Pass the peer's state of deliveries to their links; some may have been settled before. Raises AmqpError."""
        unsettled = self.unsettled
        if first == last:
            link = unsettled.get(first)
            if link is not None:
                link.take_outcomes((first,), state, settled)
            return
        count = range_size(first, last)
        if settled and count <= min(len(unsettled), RANGE_MAX):
            link = unsettled.get(first)
            if link is not None and link.unsettled.has_all(first, last):
                link.take_outcomes(range(first, last + 1), state, True)
                return
        if not settled and state is None:
            return  # a few bytes without effect, about perhaps a million deliveries
        if len(unsettled) > RANGE_MAX < count:
            self._session.connection.halted = True
        if count <= len(unsettled):
            ids = [each & MASK for each in range(first, first + count) if each & MASK in unsettled]
        else:
            ids = [each for each in unsettled if each - first & MASK < count]
        by_link: dict[OutgoingLink, list[int]] = {}
        for each in ids:
            link = unsettled.get(each)
            if link is not None:
                by_link.setdefault(link, []).append(each)
        for link, of_link in by_link.items():
            # The owner of one link may end deliveries of the next.
            if left := of_link if len(by_link) == 1 else [each for each in of_link if each in unsettled]:
                link.take_outcomes(left, state, settled)

    def forget(self, link: OutgoingLink) -> None:
        """Drop the waiting messages and unsettled deliveries of a link that ends."""
        for each in link.unsettled:
            self.unsettled.pop(each)
        if link.waiting is not None:
            self.backlog = deque(each for each in self.backlog if each.link is not link)

    def clear(self) -> None:
        """Drop everything that is unsent or unsettled, because the session ends."""
        self.window = 0
        self.unsettled.clear()
        self.backlog.clear()


def range_size(first: int, last: int) -> int:
    """Return the number of deliveries in the range of a disposition. Raises AmqpError."""
    count = (last - first & MASK) + 1
    if count > HALF:
        raise AmqpError(p.INVALID_FIELD, f"a disposition from {first} back to {last}", SESSION)
    return count
