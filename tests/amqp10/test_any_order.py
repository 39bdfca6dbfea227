"""Any performatives in any order, with any verbs of owners between: nothing is raised, nothing lost or overdrawn.

The pools of handles, ids and names are small, so that what one step makes the next ones use. A watcher reads what comes
back as a strict client would: no transfer beyond its window or credit, nothing about what has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.machine.contract import Tuning
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from leveret.protocols.amqp10.machine.link import Link
from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink
from leveret.protocols.amqp10.machine.session import Session

from .machine import (
    LOGIN,
    MANY,
    OutgoingRecorder,
    Peer,
    Recorder,
    SessionRecorder,
    begin,
    flow,
    frame,
    open_,
    receiver,
    sender,
)

CHANNELS = (0, 1)
FRAME_SIZE_MAX = 512
LARGE = bytes(2 * FRAME_SIZE_MAX)
TUNING = {"incoming_window": 6, "link_credit": 4, "message_size_max": 2000, "channel_max": 2, "handle_max": 3}


class Serving(OutgoingRecorder):
    """Sends as much as it may, every third message a large one, every fourth settled."""

    def on_credit(self, link: OutgoingLink) -> None:
        super().on_credit(link)
        self.serve()
        if link.drain:
            link.drained()

    def serve(self) -> None:
        link = self.link
        while (
            not link.ended
            and link.credit > 0
            and link.session.sending.room() > 0
            and link.delivery_count < 50
        ):
            number = link.delivery_count
            body = LARGE if number % 3 == 2 else b"small"
            link.send((link.name, number), [body], len(body), number % 4 == 3 or link.settled)


class ServingSession(SessionRecorder):
    def on_attach_outgoing(self, link: OutgoingLink, attach: p.Attach) -> Serving:
        super().on_attach_outgoing(link, attach)
        return Serving(self.notes, link)

    def on_window(self) -> None:
        super().on_window()
        for link in self.outgoing:
            if not link.ended:
                assert isinstance(link.owner, Serving)
                link.owner.serve()


class ServingHandler(Recorder):
    def on_begin(self, session: Session) -> SessionRecorder:
        super().on_begin(session)
        self.owners[-1] = ServingSession(self.notes, session)
        return self.owners[-1]


class Watched:
    """One session, as its peer sees it."""

    def __init__(self, window: int) -> None:
        self.transfers = 0
        self.transfers_max = window
        self.handles: set[int] = set()
        self.deliveries: Counter[int] = Counter()  # by handle: the sender's delivery-count
        self.deliveries_max: Counter[int] = Counter()
        self.more: set[int] = set()  # handles with a delivery under way

    def expect(self, flow: p.Flow) -> None:
        """What a flow of the peer's allows. Credit that is taken back may be on its way as messages."""
        next_incoming = flow.next_incoming_id or 0
        if next_incoming <= self.transfers:
            self.transfers_max = next_incoming + flow.incoming_window
        if flow.handle is not None and flow.link_credit is not None:
            limit = (flow.delivery_count or 0) + flow.link_credit
            self.deliveries_max[flow.handle] = max(limit, self.deliveries_max[flow.handle])

    def watch(self, performative: p.Record) -> None:
        match performative:
            case p.Attach():
                assert performative.handle not in self.handles
                self.handles.add(performative.handle)
                self.deliveries[performative.handle] = self.deliveries_max[performative.handle] = 0
            case p.Detach():
                self.handles.remove(performative.handle)
                self.more.discard(performative.handle)
            case p.Flow():
                self._watch_flow(performative)
            case p.Transfer():
                self._watch_transfer(performative)

    def _watch_flow(self, flow: p.Flow) -> None:
        assert flow.next_outgoing_id == self.transfers
        if flow.handle is not None:
            assert flow.handle in self.handles
            assert flow.delivery_count is not None
            self.deliveries[flow.handle] = flow.delivery_count

    def _watch_transfer(self, transfer: p.Transfer) -> None:
        handle = transfer.handle
        assert handle in self.handles
        self.transfers += 1
        assert self.transfers <= self.transfers_max
        if handle not in self.more:
            assert transfer.delivery_id is not None
            self.deliveries[handle] += 1
            assert self.deliveries[handle] <= self.deliveries_max[handle]
        (self.more.add if transfer.more else self.more.discard)(handle)


class Crowd:
    """A connection under test, and the watcher."""

    def __init__(self) -> None:
        self.peer = Peer(Tuning(**TUNING), ServingHandler())  # type: ignore[arg-type]
        self.peer.says(LOGIN, open_(max_frame_size=FRAME_SIZE_MAX)).outbox.take()
        self.sessions: dict[int, Watched] = {}
        self.windows: dict[int, int] = {}  # told with begins, by channel
        self.ending: set[int] = set()  # channels whose session the other side has ended
        self.closed = False

    def says(self, channel: int, performative: p.Record, payload: bytes = b"") -> None:
        if isinstance(performative, p.Begin):
            self.windows[channel] = performative.incoming_window
        elif isinstance(performative, p.Flow) and channel in self.sessions:
            self.sessions[channel].expect(performative)
        self.peer.says(frame(performative, payload, channel))
        self.watch()
        if isinstance(performative, p.End):
            self.ending.discard(channel)

    def carry_on(self) -> None:
        """Begin again what has ended, with links of both directions."""
        for channel in CHANNELS:
            if channel in self.ending:
                self.says(channel, p.End())
            if channel not in self.sessions and not self.closed:
                self.says(channel, begin(incoming_window=5))
                for handle, attach in enumerate((sender, receiver, sender)):
                    self.says(channel, attach(name=str(handle), handle=handle))
                self.says(channel, flow(1, 3, incoming_window=5))

    def does(self, verb: Callable[[], object]) -> None:
        verb()
        self.peer.connection.flush()
        self.watch()

    def watch(self) -> None:
        """Read everything that came back, and look into the books."""
        for kind, channel, body in self.peer.frames():
            assert kind == 0
            assert len(body) <= FRAME_SIZE_MAX - 8
            assert not self.closed
            performative, _ = p.decode(body, 0, len(body))
            if isinstance(performative, p.Close):
                self.closed = True
            elif isinstance(performative, p.Begin):
                assert channel not in self.sessions
                self.sessions[channel] = Watched(self.windows[channel])
            elif isinstance(performative, p.End):
                del self.sessions[channel]
                self.ending.add(channel)
            else:
                self.sessions[channel].watch(performative)
        self.check()

    def check(self) -> None:
        connection = self.peer.connection
        unfinished = 0
        for session in connection.sessions.values():
            outgoing = [link for link in session.links.values() if isinstance(link, OutgoingLink)]
            incoming = [link for link in session.links.values() if isinstance(link, IncomingLink)]
            assert dict(session.sending.unsettled.items()) == {
                each: link for link in outgoing for each in link.unsettled
            }
            assert all(link.credit >= 0 and not link.ended for link in session.links.values())
            assert all(link.unanswered >= 0 for link in incoming)
            assert len(session.detaching) + len(session.links) <= TUNING["handle_max"] + 1
            unfinished += sum(len(link._unfinished.body) for link in incoming if link._unfinished is not None)
        assert connection.unfinished.size == unfinished


# What the peer says.

ANY = st.sampled_from(CHANNELS)
IDS = st.integers(0, 6)
WHICH = st.integers(0, 5)
BOOLEANS = st.booleans()
SELDOM = st.sampled_from((False,) * 20 + (True,))
SETTLED = st.sampled_from((None, None, False, True))
OFTEN = (None, p.Accepted(), p.Released(), p.Received(section_number=0, section_offset=0))
STATES = st.sampled_from((*OFTEN * 5, p.Declared(txn_id=b"1")))
ATTACHES = st.builds(
    p.Attach,
    name=st.sampled_from(("a", "b", "c")),
    handle=WHICH,
    role=BOOLEANS,
    snd_settle_mode=st.sampled_from((2, 2, 2, 2, 0, 1)),
    rcv_settle_mode=st.sampled_from((0, 0, 1)),
    source=st.just(p.Source(address="s")),
    target=st.just(p.Target(address="t")),
    initial_delivery_count=st.sampled_from((None, 0, 0xFFFF_FFFF)),
)
FLOWS = st.builds(
    p.Flow,
    next_incoming_id=st.integers(0, 3),  # that many behind what was heard
    incoming_window=st.sampled_from((0, 1, 3, 10, MANY)),
    next_outgoing_id=IDS,
    outgoing_window=st.just(MANY),
    handle=WHICH | st.none(),
    delivery_count=st.sampled_from((None, 0, 1, 2, 5)),
    link_credit=st.sampled_from((None, 0, 1, 2, 10)),
    drain=BOOLEANS,
    echo=BOOLEANS,
)
TRANSFERS = st.builds(
    p.Transfer,
    handle=WHICH,
    delivery_id=IDS,
    delivery_tag=st.sampled_from((b"t",) * 9 + (None,)),
    settled=SETTLED,
    more=st.sampled_from((False, False, True)),
    aborted=SELDOM,
    state=st.sampled_from((None, None, p.Accepted())),
    resume=SELDOM,
)
DISPOSITIONS = st.builds(
    lambda role, first, count, settled, state: p.Disposition(
        role=role, first=first, last=first + count & 0xFFFF_FFFF, settled=settled, state=state
    ),
    BOOLEANS,
    IDS,
    st.sampled_from((0, 0, 1, 3, 9, 9, 0xFFFF_FFF0)),
    BOOLEANS,
    STATES,
)
DETACHES = st.builds(p.Detach, handle=WHICH, closed=BOOLEANS)

Step = Callable[[Crowd], None]


def says(channel: int, performative: p.Record) -> Step:
    return lambda crowd: crowd.says(channel, performative)


def about(channel: int, said: p.Flow | p.Transfer | p.Detach, payload: bytes, astray: bool) -> Step:
    """Something about a link there is, or else `astray`."""

    def step(crowd: Crowd) -> None:
        session = crowd.sessions.get(channel)
        if session is None:
            return
        if said.handle is not None and session.handles and not astray:
            said.handle = sorted(session.handles)[said.handle % len(session.handles)]
        if isinstance(said, p.Flow):
            behind = session.transfers - (said.next_incoming_id or 0)
            said.next_incoming_id = session.transfers + 1 if astray else max(0, behind)
        crowd.says(channel, said, payload)

    return step


def attaches(channel: int, attach: p.Attach, astray: bool) -> Step:
    def step(crowd: Crowd) -> None:
        session = crowd.peer.connection.sessions.get(channel)
        if session is not None and not astray:
            free = {*range(TUNING["handle_max"] + 1)}.difference(session.links, session.detaching)
            if not free:
                return
            attach.handle = min(free)
        crowd.says(channel, attach)

    return step


# What owners do, with what there is.


def picked(crowd: Crowd, which: int, of: type[Link]) -> Link | None:
    """One of the links that there are."""
    sessions = crowd.peer.connection.sessions.values()
    found = [link for session in sessions for link in session.links.values() if isinstance(link, of)]
    return found[which % len(found)] if found else None


def answers(which: int, how: str, delivery_id: int) -> Step:
    def step(crowd: Crowd) -> None:
        link = picked(crowd, which, IncomingLink)
        if isinstance(link, IncomingLink) and link.unanswered:
            verbs: dict[str, Callable[[], None]] = {
                "accept": lambda: link.accept(delivery_id),
                "release": lambda: link.answer(delivery_id, p.Released()),
                "hold": lambda: link.answer(delivery_id, p.Accepted(), settled=False),
            }
            crowd.does(verbs[how])

    return step


def wants(which: int, credit: int) -> Step:
    def step(crowd: Crowd) -> None:
        link = picked(crowd, which, IncomingLink)
        if isinstance(link, IncomingLink):
            crowd.does(lambda: link.want(credit))

    return step


def settles(which: int, ids: list[int]) -> Step:
    def step(crowd: Crowd) -> None:
        link = picked(crowd, which, OutgoingLink)
        if isinstance(link, OutgoingLink):
            crowd.does(lambda: link.settle(ids))

    return step


def fails(which: int, ends: Ends) -> Step:
    def step(crowd: Crowd) -> None:
        link = picked(crowd, which, Link)
        if link is not None:
            crowd.does(lambda: link.fail(AmqpError("amqp:resource-deleted", "gone", ends)))

    return step


def holds(held: bool) -> Step:
    def step(crowd: Crowd) -> None:
        for session in list(crowd.peer.connection.sessions.values()):
            crowd.does(session.hold if held else session.unhold)

    return step


def refused(call: str, ends: Ends, step: Step) -> Step:
    """A step during which the owners raise an error from a call."""

    def refusing(crowd: Crowd) -> None:
        crowd.peer.notes.refusals[call] = AmqpError("amqp:not-allowed", "no", ends)
        step(crowd)
        crowd.peer.notes.refusals.clear()

    return refusing


ENDS = st.sampled_from((Ends.LINK, Ends.LINK, Ends.SESSION))
SAYS = st.one_of(
    st.builds(about, ANY, FLOWS, st.just(b""), SELDOM),
    st.builds(about, ANY, FLOWS, st.just(b""), SELDOM),
    st.builds(about, ANY, TRANSFERS, st.sampled_from((b"", b"x", b"x", LARGE[:400])), SELDOM),
    st.builds(about, ANY, TRANSFERS, st.just(b"x"), SELDOM),
    st.builds(says, ANY, DISPOSITIONS),
    st.builds(about, ANY, DETACHES, st.just(b""), SELDOM) | st.builds(attaches, ANY, ATTACHES, SELDOM),
)
DOES = st.one_of(
    st.builds(answers, WHICH, st.sampled_from(("accept", "release", "hold")), IDS),
    st.builds(wants, WHICH, st.integers(0, 5)),
    st.builds(settles, WHICH, st.lists(IDS, unique=True)),
    st.builds(holds, BOOLEANS),
)
CALLS = st.sampled_from(
    ("begin", "attached_incoming", "attach_outgoing", "message", "credit", "outcomes", "window")
)
SELDOM_DOES = st.one_of(
    st.builds(says, ANY, st.just(p.End())),
    st.builds(fails, WHICH, ENDS),
    st.builds(refused, CALLS, ENDS, SAYS),
)
STEPS = st.lists(st.one_of(SAYS, SAYS, SAYS, DOES, DOES, SELDOM_DOES), min_size=20, max_size=50)


@pytest.mark.timeout(1800)  # the nightly profile tries 10 000 of them
@given(steps=STEPS)
def test_any_performatives_in_any_order_are_never_an_exception_and_the_books_balance(
    steps: list[Step],
) -> None:
    crowd = Crowd()
    for step in steps:
        crowd.carry_on()
        if crowd.closed:
            break
        step(crowd)
    crowd.peer.connection.lost()
    notes = crowd.peer.notes
    calls = Counter(str(call[0]) for call in notes.calls) - notes.refused
    assert calls["closed"] == 1
    assert calls["ended"] == calls["begin"]
    assert calls["detached"] == calls["attached_incoming"] + calls["attached_outgoing"]
    assert crowd.peer.connection.unfinished.size == 0
