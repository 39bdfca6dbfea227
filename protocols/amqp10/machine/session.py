"""A session of AMQP 1.0: begin and end, handles, windows, and the output that is gathered over a batch of input.

Each of our flows sets how many transfers the peer may send; we send a flow when half of them have come. The sending
half is in `sending`.

A handle belongs to a link (`links`), or to a link that we have detached (`detaching`): until the peer detaches as well,
input for that is dropped. Channel and handles have the same numbers in both directions: those that the peer chose.

Answers and credit are gathered until `flush`. Answers are also sent before a link is detached or the session ended,
because the peer would ignore them afterwards.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import CONNECTION, SESSION, AmqpError
from leveret.protocols.amqp10.codec.types import Described, Symbol, Value
from leveret.protocols.amqp10.codec.wire import (
    BINARY,
    DISPOSITION,
    LIST_8,
    LIST_32,
    LONG,
    MASK,
    OUTGOING_WINDOW,
    SIZE_AND_COUNT,
    SMALL_UINT,
    TAG_SIZE_MAX,
    TRANSFER_ENDS,
    UINT,
    UINT_ZERO,
    UNUSUAL,
    disposition_at,
    disposition_end,
    error_of,
    flow_at,
    link_flow,
    long_at,
    performative_at,
    session_flow,
)
from leveret.protocols.amqp10.machine.contract import SessionOwner
from leveret.protocols.amqp10.machine.dispositions import Dispositions
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from leveret.protocols.amqp10.machine.link import Link
from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink, Sending, Told, range_size
from leveret.protocols.amqp10.machine.transfer_pattern import SIZE, TransferPattern, pattern_at

if TYPE_CHECKING:
    from leveret.protocols.amqp10.machine.connection import Connection


TOGETHER_MAX: Final = 1024  # deliveries that dispositions in a row settle together
DISPOSITION_MAX: Final = 64  # bytes of the frame of such a disposition
NEXT_LINKS: Final = 500  # that end when their session does, listed at a time
AROUND_ERROR: Final = 64  # bytes of a frame with an error besides that error


class Session:
    """A session from the peer's begin to the first end. See the top of the module."""

    __slots__ = (
        "_answers",
        "_begun",
        "_hungry",
        "_incoming",
        "_low",
        "_names",
        "_next_incoming_id",
        "_owned",
        "_pattern",
        "_peer_handle_max",
        "_received_before",
        "_remains",
        "_window",
        "channel",
        "connection",
        "detaching",
        "due",
        "ended",
        "held",
        "links",
        "owner",
        "sending",
    )

    owner: SessionOwner

    def __init__(self, connection: Connection, channel: int, begin: p.Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.ended = False
        self.due = False  # there is something to flush
        self.held = False
        self.links: dict[int, Link] = {}  # by handle
        self.detaching: set[int] = set()  # handles
        self.sending = Sending(self, int(begin.incoming_window))
        self._incoming: dict[int, IncomingLink] = {}  # of `links`
        self._names: dict[tuple[str, bool], Link] = {}  # by name and the peer's role
        # These two, once the session has ended: they are emptied as its links end.
        self._remains = self._incoming, self._names
        self._peer_handle_max = begin.handle_max
        self._next_incoming_id = int(begin.next_outgoing_id)
        self._window = connection.tuning.incoming_window  # transfers that the peer may send
        self._low = self._window // 2
        self._pattern: TransferPattern | None = None  # the last pattern that was found among the transfers
        self._answers = Dispositions(channel)
        self._hungry: list[IncomingLink] = []  # with little credit
        self._received_before = 0  # messages, on links that have ended
        self._begun = False
        self._owned = False

    @property
    def received(self) -> int:
        """The number of messages that have begun to come, on all links so far."""
        return self._received_before + sum(link.received for link in self._incoming.values())

    @property
    def unanswered(self) -> tuple[int, int]:
        """The number of links on which the peer sends, and of messages there that we have not settled."""
        return len(self._incoming), sum(link.unanswered for link in self._incoming.values())

    def open(self) -> None:
        """Find the session's owner, after the peer has begun it. Raises no AmqpError."""
        try:
            self.owner = self.connection.handler.on_begin(self)
        except AmqpError as error:
            self.fail(error)
            return
        self._owned = True
        if self.ended:
            self.owner.on_ended()
        else:
            self._begin()

    def _begin(self) -> None:
        self._begun = True
        if self.held:
            self._window = 0
        tuning = self.connection.tuning
        self.say(
            p.Begin(
                remote_channel=self.channel,
                next_outgoing_id=self.sending.next_outgoing_id,
                incoming_window=self._window,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=tuning.handle_max,
            )
        )

    def fail(self, error: AmqpError) -> None:
        """End what the error ends: the session, or the connection."""
        if error.ends is CONNECTION:
            self.connection.fail(error)
        else:
            self.end(error)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session. Do nothing if it has ended. Input for it is dropped until the peer's end."""
        if self.ended:
            return
        if not self._begun:
            self._begin()
        self.tell_outcomes()
        self.connection.forget_session(self, ending=True)
        self.lost(p.End(error=self.error_of(error)))

    def peer_ended(self) -> None:
        """End the session after the peer's end, and answer that."""
        self.connection.forget_session(self, ending=False)
        self.lost(p.End())

    def silence(self) -> None:
        """Stop sending and taking anything: calls of owners have no effect from now on."""
        if self.ended:
            return
        self.ended = True
        self.sending.clear()
        self._answers.clear()
        self._incoming, self._names = {}, {}

    def lost(self, last: p.End | None = None) -> None:
        """End the session, which the connection has forgotten already: its links, then its owner. Then send `last`."""
        self.silence()
        self.connection.ends(partial(self._end_one, [], last))

    def _end_one(self, handles: list[int], last: p.End | None) -> bool:
        """End the first link, or the session if there is none; return whether there was. `handles`: of the next."""
        if not handles:
            handles += islice(self.links, NEXT_LINKS)  # to list 65,535 would hold up others
            handles.reverse()
        if handles:
            link = self.links.pop(handles.pop(), None)  # the first one of them
            if link is not None:
                incoming, names = self._remains
                incoming.pop(link.handle, None)
                names.pop((link.name, link.role), None)
                link.end(closed=False)
            return True
        if self._owned:
            self.owner.on_ended()
        if last is not None:
            self.connection.say(self.channel, last)
        return False

    def say(self, performative: p.Record) -> None:
        """Send a performative, if the session has not ended."""
        if not self.ended:
            self.connection.say(self.channel, performative)

    def error_of(self, error: AmqpError | None) -> p.Error | None:
        return None if error is None else error_of(error, self._error_size_max())

    def _error_size_max(self) -> int:
        return self.connection.frame_size_max - AROUND_ERROR

    def take(self, performative: p.Record, payload: bytes) -> None:
        """Handle any performative for a session. Raises AmqpError."""
        match performative:
            case p.Transfer():
                self._take_transfer(performative, payload)
            case p.Disposition():
                self._take_disposition(performative)
            case p.Flow():
                self._take_flow(performative)
            case p.Attach():
                self._take_attach(performative)
            case p.Detach():
                self._take_detach(performative)
            case _:
                assert isinstance(performative, p.End)
                self.peer_ended()

    def _take_attach(self, attach: p.Attach) -> None:
        handle, handle_max = int(attach.handle), self.connection.tuning.handle_max
        if handle > handle_max:
            text = f"link handle value ({handle}) exceeds maximum link handle value ({handle_max})"
            raise AmqpError(p.CONNECTION_FRAMING_ERROR, text, CONNECTION)
        if handle in self.links or handle in self.detaching:
            text = f"handle {handle} is already associated with a link"
            raise AmqpError(p.SESSION_HANDLE_IN_USE, text, SESSION)
        if handle > self._peer_handle_max:
            text = (
                f"links have the same handle in both directions, but the peer's handle-max forbids {handle}"
            )
            raise AmqpError(p.RESOURCE_LIMIT_EXCEEDED, text, SESSION)
        name = (attach.name, attach.role)
        if name in self._names:  # a link that is attached again is stolen (part 2, section 2.6.1)
            self._names[name].detach(AmqpError(p.LINK_STOLEN, f"link '{attach.name}' was attached again"))
        if self.ended:
            return
        link = OutgoingLink(self, attach) if attach.role == p.ROLE_RECEIVER else IncomingLink(self, attach)
        self.links[handle] = self._names[name] = link
        if isinstance(link, IncomingLink):
            self._incoming[handle] = link
        link.open(attach)

    def _take_detach(self, detach: p.Detach) -> None:
        link = self._link(detach.handle)
        if link is None:
            self.detaching.remove(detach.handle)
        else:
            link.peer_detached(detach.closed)

    def _link(self, handle: int) -> Link | None:
        """Return the link, or None if it is being detached. Raises AmqpError (S169)."""
        link = self.links.get(handle)
        if link is None and handle not in self.detaching:
            text = f"Unattached link handle: {int(handle)}"
            raise AmqpError(p.SESSION_UNATTACHED_HANDLE, text, SESSION)
        return link

    def forget_link(self, link: Link) -> None:
        """Remove a link that ends."""
        self.links.pop(link.handle, None)
        if self._incoming.pop(link.handle, None) is not None and isinstance(link, IncomingLink):
            self._received_before += link.received
        self._names.pop((link.name, link.role), None)
        if isinstance(link, OutgoingLink):
            self.sending.forget(link)

    def take_run_at(self, data: bytes, at: int, after: int, frame_size_max: int) -> int:
        """Take transfers with the pattern of the frame from `at` to `after`. Return the offset of the next frame."""
        pattern = self._pattern
        if pattern is None or not pattern.is_at(data, at):
            pattern = self._pattern = pattern_at(data, at, after)
        if pattern is None or not pattern.is_at(data, after) or pattern.handle not in self._incoming:
            return at
        link = self._incoming[pattern.handle]
        most = min(self._window, link.run_max(pattern.settled))
        run = pattern.run_at(data, at, most, min(frame_size_max, pattern.payload_at + link.size_max))
        if len(run.ids) < 2:
            return at
        count = link.take_run(run.ids, run.payloads, pattern.settled)
        if count < len(run.ids):
            self.connection.singly_until = len(data)
        window = self._window
        self._window = window - count
        self._next_incoming_id = self._next_incoming_id + count & MASK
        if window > self._low >= self._window:
            self.become_due()
        return run.end_of(count)

    def take_transfer_at(self, data: bytes, at: int, end: int) -> None:
        """Take a transfer, whose descriptor is at `at`, with the payload behind it up to `end`. Raises AmqpError."""
        try:
            if data[at + 3] == LIST_8:
                count = data[at + 5]
                after = at + 5 + data[at + 4]
                field = at + 6
            else:
                size, count = SIZE_AND_COUNT.unpack_from(data, at + 4)
                after = at + 8 + size
                field = at + 12 if data[at + 3] == LIST_32 else end
            code = data[field]
            if code == UINT_ZERO:
                handle = 0
                field += 1
            else:
                handle = data[field + 1] if code == SMALL_UINT else UNUSUAL
                field += 2
            code = data[field]
            if code == UINT:
                (delivery_id,) = LONG.unpack_from(data, field + 1)
                field += 5
            elif code == SMALL_UINT:
                delivery_id = data[field + 1]
                field += 2
            else:
                delivery_id = 0 if code == UINT_ZERO else UNUSUAL
                field += 1
            tag_size = data[field + 1] if data[field] == BINARY else MASK
            tag_end = field + 2 + tag_size
            fields, settled, more = TRANSFER_ENDS[data[min(tag_end, after) : after]]
            link = self._incoming[handle]
        except (KeyError, IndexError, struct.error):
            self.take(*performative_at(data, at, end))
            return
        if fields != count or delivery_id < 0 or tag_size > TAG_SIZE_MAX or not tag_end <= after <= end:
            self.take(*performative_at(data, at, end))
            return
        window = self._window - 1
        if window < 0:
            raise self._window_violation()
        self._window = window
        self._next_incoming_id = self._next_incoming_id + 1 & MASK
        if window == self._low:
            self.become_due()
        link.take(delivery_id, data[tag_end - tag_size : tag_end], settled, more, data[after:end])

    def _take_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        if not self._window:
            raise self._window_violation()
        self._window -= 1
        self._next_incoming_id = self._next_incoming_id + 1 & MASK
        if self._window == self._low:
            self.become_due()
        link = self._link(transfer.handle)
        if isinstance(link, IncomingLink):
            link.take_transfer(transfer, payload)
        elif link is not None:
            link.fail(AmqpError(p.NOT_ALLOWED, f"the peer is the receiver of link '{link.name}'"))

    def _window_violation(self) -> AmqpError:
        text = "more transfers than the incoming window of the session allowed"
        return AmqpError(p.SESSION_WINDOW_VIOLATION, text, SESSION)

    def take_flow_at(self, data: bytes, at: int, end: int) -> None:
        """Take a flow, whose descriptor is at `at`. Raises AmqpError."""
        flow = flow_at(data, at, end)
        if flow is None:
            self.take(*performative_at(data, at, end))
        else:
            self._take_flow(flow)

    def _take_flow(self, flow: p.Flow) -> None:
        had_room = self.sending.room()
        self.sending.open(flow.next_incoming_id or 0, flow.incoming_window)
        self._next_incoming_id = int(flow.next_outgoing_id)
        if not had_room and self.sending.room():
            self._tell_room()
        if self.ended:
            return
        if flow.handle is None:
            if flow.echo:
                self.say_flow()
            return
        link = self._link(flow.handle)
        if link is not None:
            link.echo = flow.echo
            link.take_flow(flow)
            if link.echo and not link.ended:
                self.say_flow(link)

    def _tell_room(self) -> None:
        try:
            self.owner.on_window()
        except AmqpError as error:
            self.fail(error)

    def hold(self) -> None:
        """Grant no transfers beyond those under way (S162); a session that is held when it begins grants none."""
        if not self.held:
            self.held = True
            self.say_flow()

    def unhold(self) -> None:
        """Grant transfers again after `hold`."""
        if self.held:
            self.held = False
            self.say_flow()

    def say_flow(self, link: Link | None = None) -> None:
        """Send a flow about the session, and perhaps about one of its links."""
        if self.ended or not self._begun:
            return
        if link is None:
            self.write_flow()
            return
        link.echo = False
        told = link.delivery_count, link.credit_told(), link.available, link.drain_told()
        if isinstance(link, OutgoingLink):
            self.sending.tell(link, told)
        else:
            self.write_flow(link.handle, told)

    def say_properties(self, link: OutgoingLink, properties: Mapping[str, Value]) -> None:
        """Send a flow about one of the session's links, with properties of its state (part 2, section 2.7.4)."""
        window = 0
        if not self.held:
            window = self._window = self.connection.tuning.incoming_window
        self.say(
            p.Flow(
                next_incoming_id=self._next_incoming_id,
                incoming_window=window,
                next_outgoing_id=self.sending.next_outgoing_id,
                outgoing_window=OUTGOING_WINDOW,
                handle=link.handle,
                delivery_count=link.delivery_count,
                link_credit=link.credit_told(),
                available=link.available,
                drain=link.drain_told(),
                properties={Symbol(name): value for name, value in properties.items()},
            )
        )

    def write_flow(self, handle: int | None = None, told: Told | None = None) -> None:
        """Write a flow."""
        window = 0
        if not self.held:
            window = self._window = self.connection.tuning.incoming_window
        numbers = self.channel, self._next_incoming_id, window, self.sending.next_outgoing_id
        if handle is None or told is None:
            self.connection.outbox.write(session_flow(*numbers))
        else:
            self.connection.outbox.write(link_flow(*numbers, handle, *told))

    def take_disposition_at(self, data: bytes, begin: int, at: int, end: int) -> int:
        """Take a disposition of the frame from `begin` to `end`, whose descriptor is at `at`, and those behind it that
        settle the next deliveries in the same way. Return the offset of the next frame. Raises AmqpError."""
        disposition = disposition_at(data, at, end)
        if disposition is None:
            self.take(*performative_at(data, at, end))
            return end
        first, last, state, settled = disposition
        if settled and first <= last:
            front = data[begin + SIZE : at + len(DISPOSITION)]
            while data.startswith(front, end + SIZE) and last - first < TOGETHER_MAX:
                after = end + long_at(data, end)
                if after > len(data) or not len(front) < after - end <= DISPOSITION_MAX:
                    break
                following = disposition_at(data, end + at - begin, after)
                if following is None or following[0] != last + 1 or following[1] < following[0]:
                    break
                if not following[3] or following[2] is not state:
                    break
                last, begin, at, end = following[1], end, end + at - begin, after
        self.sending.take_outcomes(first, last, state, settled)
        return end

    def _take_disposition(self, disposition: p.Disposition) -> None:
        first = int(disposition.first)
        last = first if disposition.last is None else int(disposition.last)
        state = disposition.state
        if isinstance(state, Described | p.Declared):
            text = f"Unrecognised state: {state!r:.100} in DISPOSITION"
            raise AmqpError(p.INVALID_FIELD, text, SESSION)
        if disposition.role == p.ROLE_RECEIVER:
            self.sending.take_outcomes(first, last, state, disposition.settled)
        elif disposition.settled:
            count = range_size(first, last)
            for link in self._incoming.values():
                link.peer_settled(first, count)

    def accept(self, delivery_ids: Sequence[int]) -> None:
        """Accept and settle messages; the next flush sends it."""
        self._answers.accepted += delivery_ids
        if not self.due:
            self.become_due()

    def answer(self, receiver: bool, delivery_id: int, settled: bool, state: p.DeliveryState | None) -> None:
        """Answer a delivery, one of the peer's if we are the `receiver`; the next flush sends it."""
        self._answers.add(receiver, delivery_id, disposition_end(settled, state, self._error_size_max()))
        self.become_due()

    def tell_outcomes(self) -> None:
        """Send the gathered answers."""
        if not self.ended:
            self._answers.tell(self.connection.outbox.write)

    def become_due(self) -> None:
        """Have the next flush handle this session."""
        if not self.due:
            self.due = True
            self.connection.due[self] = None

    def is_hungry(self, link: IncomingLink) -> None:
        """Have the next flush check whether a link with little credit may have more."""
        if not link.hungry:
            link.hungry = True
            self._hungry.append(link)
            self.become_due()

    def flush(self) -> None:
        """Send the gathered outcomes, and credit and windows of which half is used up."""
        if self.due:
            self.due = False
            self.connection.due.pop(self, None)
        if self.ended:
            return
        self._answers.tell(self.connection.outbox.write)
        if self._hungry:
            hungry, self._hungry = self._hungry, []
            for link in hungry:
                if not link.ended:
                    link.grant()
        if self._window <= self._low and not self.held:
            self.write_flow()
