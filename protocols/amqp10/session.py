"""One AMQP 1.0 session: windows, delivery ids, handles, and dispositions of both sides.

Two windows bound what is under way, counted in transfers. What the peer may send is told with each of our flows, and
one is sent when half of it is used up. What we may send is told by the peer's; what goes beyond that waits in the
backlog, in order, and so do flows about links with something in there.

A handle stands for a link (`links`), or for one that we have detached (`detaching`): until the peer detaches as well,
what it says of that is dropped. Channel and handles have the same numbers in both directions: those the peer chose.

What is to be said of deliveries, and credit, is gathered until `flush`: consecutive ids become one disposition. It is
also said before a link is detached or the session ended, as it would be lost on the peer afterwards.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from protocols.amqp10 import performatives as p
from protocols.amqp10.contract import AmqpError, Ends, SessionOwner
from protocols.amqp10.links import IncomingLink, Link, OutgoingLink
from protocols.amqp10.types import Described
from protocols.amqp10.wire import (
    BINARY,
    DISPOSITION_ENDS,
    FRAME_AMQP,
    FRAME_OVERHEAD,
    FRAME_START,
    HALF,
    LIST_8,
    LIST_32,
    LONG,
    MASK,
    NULL,
    OFFSET_MIN,
    OUTGOING_WINDOW,
    SIZE_AND_COUNT,
    SMALL_UINT,
    TAG_SIZE_MAX,
    TRANSFER_ENDS,
    TRUE,
    UINT,
    UINT_ZERO,
    disposition_end,
    disposition_frame,
    distance,
    error_of,
    link_flow,
    performative_at,
    runs,
    session_flow,
)

if TYPE_CHECKING:
    from protocols.amqp10.connection import Connection

Told: TypeAlias = tuple[int, int, int, bool]  # delivery-count, link-credit, available, drain

UNUSUAL: Final = -1
AROUND_ERROR: Final = 64  # octets of a frame that an error is in, and of what else that says
SETTLED_ACCEPTED: Final = b"\x41\x00\x53\x24\x45"


class Session:
    """One session, from the peer's begin to the first end. See the top of the module."""

    __slots__ = (
        "_accepted",
        "_answers",
        "_begun",
        "_hungry",
        "_incoming",
        "_low",
        "_names",
        "_owned",
        "_peer_handle_max",
        "_window",
        "backlog",
        "channel",
        "connection",
        "detaching",
        "due",
        "ended",
        "held",
        "links",
        "next_delivery_id",
        "next_incoming_id",
        "next_outgoing_id",
        "owner",
        "unsettled",
        "window",
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
        self.next_incoming_id = int(begin.next_outgoing_id)
        self._window = connection.tuning.incoming_window  # transfers that the peer may send
        self._low = self._window // 2
        self.next_outgoing_id = 0
        self.next_delivery_id = 0
        self.window = int(begin.incoming_window)  # transfers that we may send
        # links with a transfer and its payload, or else with what a flow is to tell
        self.backlog: deque[tuple[OutgoingLink, bytes, list[bytes], Told | None]] = deque()
        self.unsettled: dict[int, OutgoingLink] = {}  # by delivery id, in the order of sending
        self._peer_handle_max = begin.handle_max
        self._incoming: dict[int, IncomingLink] = {}  # of `links`
        self._names: dict[tuple[str, bool], Link] = {}  # by name and the peer's role
        self._accepted: list[int] = []  # delivery ids
        self._answers: list[tuple[bool, int, bytes]] = []  # our role, delivery id, the end of a disposition
        self._hungry: list[IncomingLink] = []  # links with little credit
        self._begun = False
        self._owned = False

    # Begin and end.

    def open(self) -> None:
        """The peer has begun: find who serves the session. Raises no AmqpError."""
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
                next_outgoing_id=self.next_outgoing_id,
                incoming_window=self._window,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=tuning.handle_max,
            )
        )

    def fail(self, error: AmqpError) -> None:
        """End what the error ends: the session, or the connection."""
        if error.ends is Ends.CONNECTION:
            self.connection.fail(error)
        else:
            self.end(error)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; nothing happens if it has ended. What the peer says of it until its own end is dropped."""
        if self.ended:
            return
        if not self._begun:
            self._begin()
        self.tell_outcomes()
        self.connection.forget_session(self, ending=True)
        self.lost()
        self.connection.say(self.channel, p.End(error=self.error_of(error)))

    def peer_ended(self) -> None:
        """The peer has ended it, and is answered."""
        self.connection.forget_session(self, ending=False)
        self.lost()
        self.connection.say(self.channel, p.End())

    def lost(self) -> None:
        """The session has ended, and the connection has forgotten it: end what belongs to it."""
        self.ended = True
        self.backlog.clear()
        self.unsettled.clear()
        self._incoming.clear()
        self._names.clear()
        while self.links:
            _, link = self.links.popitem()
            link.end(closed=False)
        if self._owned:
            self.owner.on_ended()

    def say(self, performative: p.Record) -> None:
        """Send a performative, if the session has not ended."""
        if not self.ended:
            self.connection.say(self.channel, performative)

    def error_of(self, error: AmqpError | None) -> p.Error | None:
        return None if error is None else error_of(error, self._error_size_max())

    def _error_size_max(self) -> int:
        return self.connection.frame_size_max - AROUND_ERROR

    # Links.

    def take(self, performative: p.Record, payload: bytes) -> None:
        """Anything that a session may be told. Raises AmqpError."""
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
            raise AmqpError(p.CONNECTION_FRAMING_ERROR, text, Ends.CONNECTION)
        if handle in self.links or handle in self.detaching:
            text = f"handle {handle} is already associated with a link"
            raise AmqpError(p.SESSION_HANDLE_IN_USE, text, Ends.SESSION)
        if handle > self._peer_handle_max:
            text = (
                f"links have the same handle in both directions, but the peer's handle-max forbids {handle}"
            )
            raise AmqpError(p.RESOURCE_LIMIT_EXCEEDED, text, Ends.SESSION)
        name = (attach.name, attach.role)
        if name in self._names:  # what is attached again is stolen (part 2, section 2.6.1)
            self._names[name].detach(AmqpError(p.LINK_STOLEN, f"link '{attach.name}' was attached again"))
        if self.ended:
            return
        link = OutgoingLink(self, attach) if attach.role == p.ROLE_RECEIVER else IncomingLink(self, attach)
        self.links[handle] = self._names[name] = link
        if isinstance(link, IncomingLink):
            self._incoming[handle] = link
        link.open()

    def _take_detach(self, detach: p.Detach) -> None:
        link = self._link(detach.handle)
        if link is None:
            self.detaching.remove(detach.handle)
        else:
            link.peer_detached(detach.closed)

    def _link(self, handle: int) -> Link | None:
        """The link; None if it is being detached. Raises AmqpError (S169)."""
        link = self.links.get(handle)
        if link is None and handle not in self.detaching:
            text = f"Unattached link handle: {int(handle)}"
            raise AmqpError(p.SESSION_UNATTACHED_HANDLE, text, Ends.SESSION)
        return link

    def forget_link(self, link: Link) -> None:
        """A link ends: what it has in the backlog is not sent any more."""
        self.links.pop(link.handle, None)
        self._incoming.pop(link.handle, None)
        self._names.pop((link.name, link.attach_request.role), None)
        if isinstance(link, OutgoingLink):
            self.forget_deliveries(link.unsettled)
            if self.backlog:
                self.backlog = deque(each for each in self.backlog if each[0] is not link)

    # Transfers that come.

    def take_transfer_at(self, data: bytes, at: int, end: int) -> None:
        """A transfer, whose descriptor is at `at`, and the payload behind it up to `end`. Raises AmqpError."""
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
            fields, settled, more = TRANSFER_ENDS[data[tag_end:after]]
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
        self.next_incoming_id = self.next_incoming_id + 1 & MASK
        if window == self._low:
            self.become_due()
        link.take(delivery_id, data[tag_end - tag_size : tag_end], settled, more, data[after:end])

    def _take_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        if not self._window:
            raise self._window_violation()
        self._window -= 1
        self.next_incoming_id = self.next_incoming_id + 1 & MASK
        if self._window == self._low:
            self.become_due()
        link = self._link(transfer.handle)
        if isinstance(link, IncomingLink):
            link.take_transfer(transfer, payload)
        elif link is not None:
            link.fail(AmqpError(p.NOT_ALLOWED, f"the peer is the receiver of link '{link.name}'"))

    def _window_violation(self) -> AmqpError:
        text = "more transfers than the incoming window of the session allowed"
        return AmqpError(p.SESSION_WINDOW_VIOLATION, text, Ends.SESSION)

    # Transfers that go, and the peer's window.

    def room(self) -> int:
        """How many transfers the peer takes now."""
        return 0 if self.backlog else self.window

    def send(self, link: OutgoingLink, body: bytes, pieces: list[bytes]) -> None:
        """Send a transfer and its payload, now or when the peer has room."""
        if self.window and not self.backlog:
            self._put(body, pieces)
        else:
            self.backlog.append((link, body, pieces, None))

    def _put(self, body: bytes, pieces: list[bytes]) -> None:
        outbox = self.connection.outbox
        size = FRAME_OVERHEAD + len(body) + sum(map(len, pieces))
        out = outbox.open()
        out.append(FRAME_START.pack(size, OFFSET_MIN, FRAME_AMQP, self.channel) + body)
        out += pieces
        outbox.wrote(size)
        self.window -= 1
        self.next_outgoing_id = self.next_outgoing_id + 1 & MASK

    def _send_backlog(self) -> None:
        while self.backlog:
            link, body, pieces, told = self.backlog[0]
            if told is not None:
                self._write_flow(link.handle, told)
            elif self.window:
                self._put(body, pieces)
            else:
                break
            self.backlog.popleft()

    def _take_flow(self, flow: p.Flow) -> None:
        had_room = self.room()
        self._open_window(flow)
        if not had_room and self.room():
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

    def _open_window(self, flow: p.Flow) -> None:
        under_way = distance(self.next_outgoing_id, flow.next_incoming_id or 0)
        if under_way < 0:
            text = f"next-incoming-id {flow.next_incoming_id} is ahead of next-outgoing-id {self.next_outgoing_id}"
            raise AmqpError(p.SESSION_WINDOW_VIOLATION, text, Ends.SESSION)
        self.window = max(0, flow.incoming_window - under_way)
        self.next_incoming_id = int(flow.next_outgoing_id)
        self._send_backlog()

    def _tell_room(self) -> None:
        try:
            self.owner.on_window()
        except AmqpError as error:
            self.fail(error)

    # Our window.

    def hold(self) -> None:
        """Let no more transfers come than are under way (S162); a session that is held when it begins takes none."""
        if not self.held:
            self.held = True
            self.say_flow()

    def unhold(self) -> None:
        """Take back `hold`."""
        if self.held:
            self.held = False
            self.say_flow()

    def say_flow(self, link: Link | None = None) -> None:
        """Tell how the session and perhaps one of its links stands."""
        if self.ended or not self._begun:
            return
        if link is None:
            self._write_flow()
            return
        link.echo = False
        told = link.delivery_count, link.credit_told(), link.available, link.drain_told()
        if isinstance(link, OutgoingLink) and any(each[0] is link for each in self.backlog):
            self._tell_later(link, told)
        else:
            self._write_flow(link.handle, told)

    def _tell_later(self, link: OutgoingLink, told: Told) -> None:
        """Behind what waits of the link; a flow that is there already gives way."""
        if self.backlog[-1][0] is link and self.backlog[-1][3] is not None:
            self.backlog.pop()
        self.backlog.append((link, b"", [], told))

    def _write_flow(self, handle: int | None = None, told: Told | None = None) -> None:
        window = 0
        if not self.held:
            window = self._window = self.connection.tuning.incoming_window
        outbox = self.connection.outbox
        if handle is None or told is None:
            outbox.write(session_flow(self.channel, self.next_incoming_id, window, self.next_outgoing_id))
        else:
            outbox.write(
                link_flow(self.channel, self.next_incoming_id, window, self.next_outgoing_id, handle, *told)
            )

    def is_hungry(self, link: IncomingLink) -> None:
        """The link has little credit left: see at the next flush whether it may have more."""
        if not link.hungry:
            link.hungry = True
            self._hungry.append(link)
            self.become_due()

    # Outcomes that come.

    def take_disposition_at(self, data: bytes, at: int, end: int) -> None:
        """A disposition, whose descriptor is at `at`. Raises AmqpError."""
        try:
            after = at + 5 + data[at + 4]
            quick = data[at + 3] == LIST_8 and data[at + 6] == TRUE and after == end
            field = at + 7
            code = data[field]
            if code == UINT:
                (first,) = LONG.unpack_from(data, field + 1)
                field += 5
            elif code == SMALL_UINT:
                first = data[field + 1]
                field += 2
            else:
                first = 0 if code == UINT_ZERO else UNUSUAL
                field += 1
            code = data[field]
            if code == UINT:
                (last,) = LONG.unpack_from(data, field + 1)
                field += 5
            elif code == SMALL_UINT:
                last = data[field + 1]
                field += 2
            else:
                last = first if code == NULL else 0 if code == UINT_ZERO else UNUSUAL
                field += 1
            fields, settled, state = DISPOSITION_ENDS[data[field:after]]
            quick = quick and fields == data[at + 5] and first >= 0 and last >= 0
        except (KeyError, IndexError, struct.error):
            quick = False
        if quick:
            self._take_outcomes(first, last, state, settled)
        else:
            self.take(*performative_at(data, at, end))

    def _take_disposition(self, disposition: p.Disposition) -> None:
        first = int(disposition.first)
        last = first if disposition.last is None else int(disposition.last)
        state = disposition.state
        if isinstance(state, Described | p.Declared):
            text = f"Unrecognised state: {state!r:.100} in DISPOSITION"
            raise AmqpError(p.INVALID_FIELD, text, Ends.SESSION)
        if disposition.role == p.ROLE_RECEIVER:
            self._take_outcomes(first, last, state, disposition.settled)
        elif disposition.settled:
            count = range_size(first, last)
            for link in self._incoming.values():
                link.peer_settled(first, count)

    def _take_outcomes(self, first: int, last: int, state: p.DeliveryState | None, settled: bool) -> None:
        unsettled = self.unsettled
        if first == last:
            link = unsettled.get(first)
            if link is not None:
                link.take_outcomes((first,), state, settled)
            return
        count = range_size(first, last)
        if count <= len(unsettled):
            ids = [each & MASK for each in range(first, first + count) if each & MASK in unsettled]
        else:
            ids = [each for each in unsettled if each - first & MASK < count]
        links = [unsettled[each] for each in ids]
        for link in dict.fromkeys(links):
            if links.count(link) == len(ids):
                link.take_outcomes(ids, state, settled)
            else:
                of_link = [each for each, its in zip(ids, links, strict=True) if its is link]
                link.take_outcomes(of_link, state, settled)

    def forget_deliveries(self, ids: Iterable[int]) -> None:
        for each in ids:
            self.unsettled.pop(each, None)

    # Outcomes that go.

    def accept(self, delivery_id: int) -> None:
        """Say at the next flush that a message is accepted and settled."""
        self._accepted.append(delivery_id)
        if not self.due:
            self.become_due()

    def answer(self, receiver: bool, delivery_id: int, settled: bool, state: p.DeliveryState | None) -> None:
        """Say at the next flush what becomes of a delivery, one of the peer's if we are the `receiver`."""
        self._answers.append((receiver, delivery_id, disposition_end(settled, state, self._error_size_max())))
        self.become_due()

    def tell_outcomes(self) -> None:
        """Say what there is to say of deliveries, each run of ids at once."""
        accepted, self._accepted = self._accepted, []
        answers, self._answers = self._answers, []
        if self.ended:
            return
        if not answers:
            accepted.sort()
            for first, last in runs(accepted):
                self._say_outcome(True, first, last, SETTLED_ACCEPTED)
            return
        answers += [(True, each, SETTLED_ACCEPTED) for each in accepted]
        answers.sort(key=by_role_and_id)  # stable: two answers for one delivery stay in their order
        at = 0
        while at < len(answers):
            receiver, first, end = answers[at]
            last = first
            at += 1
            while at < len(answers) and answers[at] == (receiver, last + 1, end):
                last += 1
                at += 1
            self._say_outcome(receiver, first, last, end)

    def _say_outcome(self, receiver: bool, first: int, last: int, end: bytes) -> None:
        self.connection.outbox.write(disposition_frame(self.channel, receiver, first, last, end))

    def become_due(self) -> None:
        if not self.due:
            self.due = True
            self.connection.due[self] = None

    def flush(self) -> None:
        """Say what was gathered: outcomes, and credit and windows that are half used up."""
        if self.due:
            self.due = False
            self.connection.due.pop(self, None)
        if self.ended:
            return
        if self._accepted or self._answers:
            self.tell_outcomes()
        if self._hungry:
            hungry, self._hungry = self._hungry, []
            for link in hungry:
                if not link.ended:
                    link.grant()
        if self._window <= self._low and not self.held:
            self._write_flow()


def by_role_and_id(answer: tuple[bool, int, bytes]) -> tuple[bool, int]:
    return answer[:2]


def range_size(first: int, last: int) -> int:
    """How many deliveries a disposition speaks of. Raises AmqpError."""
    count = (last - first & MASK) + 1
    if count > HALF:
        raise AmqpError(p.INVALID_FIELD, f"a disposition from {first} back to {last}", Ends.SESSION)
    return count
