"""The client's side of a connection of AMQP 1.0: its handshake, its windows, and what a broker should not send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import wire
from leveret.protocols.amqp10.machine.client import FRAME_MAX, WINDOW, Client10, Login, Owner
from leveret.protocols.shared.machine.states import State
from tests.harness.machine import Pieces

LOGIN = Login("PLAIN", "shop", "sesame", "there", "shovel s", 10, 30.0, 1000)
RECEIVING = p.Attach(name="s", handle=0, role=True, source=p.Source(address="q"), target=p.Target())
SENDING = p.Attach(
    name="s", handle=0, role=False, source=p.Source(), target=p.Target(address="q"), initial_delivery_count=0
)
MECHANISMS = p.SaslMechanisms(sasl_server_mechanisms=["PLAIN", "ANONYMOUS"])
WELCOME = p.SaslOutcome(code=0)
OPEN = p.Open(container_id="there", max_frame_size=512, idle_time_out=20_000)
BEGIN = p.Begin(remote_channel=0, next_outgoing_id=7, incoming_window=3, outgoing_window=100)
THEIR_SOURCE = p.Attach(
    name="s", handle=5, role=False, source=p.Source(address="q"), target=p.Target(), initial_delivery_count=0
)
THEIR_TARGET = p.Attach(
    name="s", handle=5, role=True, source=p.Source(), target=p.Target(address="q"), max_message_size=900
)


class Notes(Owner):
    """What the machine has told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.ends: list[str] = []

    def on_open(self) -> None:
        self.told.append("open")

    def on_message(self, delivery_id: int, message_format: int, payload: bytes) -> None:
        self.told.append((delivery_id, message_format, payload))

    def on_outcome(self, first: int, last: int, state: p.DeliveryState | None) -> None:
        self.told.append((first, last, type(state)))

    def on_room(self) -> None:
        self.told.append("room")

    def on_end(self, reason: str) -> None:
        self.ends.append(reason)


class Talk:
    """A client, and what the broker says to it."""

    def __init__(self, link: p.Attach = RECEIVING, is_open: bool = True, login: Login = LOGIN) -> None:
        self.notes = Notes()
        self.out = Pieces()
        self.client = Client10(self.notes, login, link, self.out, 0.0)
        self.client.begin()
        if is_open:
            self.greet()
            self.say(OPEN)
            self.say(BEGIN)
            self.say(THEIR_SOURCE if link.role else THEIR_TARGET)
            assert self.notes.told == ["open"]
            self.notes.told.clear()
            self.out.take()

    def greet(self) -> None:
        self.hear(wire.HEADER_SASL)
        self.say(MECHANISMS, kind=wire.FRAME_SASL)
        self.say(WELCOME, kind=wire.FRAME_SASL)
        self.hear(wire.HEADER_AMQP)

    def hear(self, octets: bytes) -> None:
        self.client.receive(octets, 1.0)

    def say(self, performative: p.Record, payload: bytes = b"", kind: int = wire.FRAME_AMQP) -> None:
        self.hear(wire.frame(0, performative.encode() + payload, kind))

    def grant(self, credit: int, window: int = 100, **fields: object) -> None:
        """Have the broker of a sender take more."""
        flow: dict[str, object] = {"next_incoming_id": 0, "delivery_count": 0, **fields}
        self.say(
            p.Flow(
                incoming_window=window,
                next_outgoing_id=0,
                outgoing_window=9,
                handle=5,
                link_credit=credit,
                **flow,
            )  # type: ignore[arg-type]
        )

    def said(self) -> list[tuple[p.Record, bytes]]:
        """The performatives that the client has sent, with their payloads."""
        data, at, found = self.out.take(), 0, []
        while at < len(data):
            if data.startswith(b"AMQP", at):
                at += wire.HEADER_SIZE
                continue
            size, offset, _, _ = wire.FRAME_START.unpack_from(data, at)
            if size > wire.FRAME_OVERHEAD:
                found.append(wire.performative_at(data, at + 4 * offset, at + size))
            at += size
        return found

    def names(self) -> list[str]:
        return [type(performative).__name__ for performative, _ in self.said()]


# The handshake.


def test_the_handshake_step_by_step() -> None:
    talk = Talk(is_open=False)
    assert talk.out.take() == wire.HEADER_SASL
    talk.hear(wire.HEADER_SASL)
    talk.say(MECHANISMS, kind=wire.FRAME_SASL)
    ((init, _),) = talk.said()
    assert isinstance(init, p.SaslInit)
    assert (init.mechanism, init.initial_response, init.hostname) == ("PLAIN", b"\0shop\0sesame", "there")
    talk.say(WELCOME, kind=wire.FRAME_SASL)
    ((opened, _),) = talk.said()
    assert isinstance(opened, p.Open)
    assert (opened.container_id, opened.hostname, opened.idle_time_out) == ("shovel s", "there", 10_000)
    talk.hear(wire.HEADER_AMQP)
    talk.say(OPEN)
    assert talk.names() == ["Begin", "Attach"]
    talk.say(BEGIN)
    talk.say(THEIR_SOURCE)
    assert (talk.notes.told, talk.client.state) == (["open"], State.OPEN)


def test_the_handshake_byte_by_byte() -> None:
    talk = Talk(is_open=False)
    parts = (
        wire.HEADER_SASL,
        wire.frame(0, MECHANISMS.encode(), 1),
        wire.frame(0, WELCOME.encode(), 1),
        wire.HEADER_AMQP,
        *(wire.frame(0, each.encode()) for each in (OPEN, BEGIN, THEIR_SOURCE)),
    )
    for octet in b"".join(parts):
        talk.hear(bytes((octet,)))
    assert talk.notes.told == ["open"]


@pytest.mark.parametrize(
    ("mechanism", "response"), [("PLAIN", b"\0shop\0sesame"), ("ANONYMOUS", b""), ("EXTERNAL", b"")]
)
def test_the_mechanism_that_is_asked_for_is_taken(mechanism: str, response: bytes) -> None:
    talk = Talk(is_open=False, login=Login(mechanism, "shop", "sesame", "h", "c", 0, 30.0, 1000))
    talk.out.take()
    talk.hear(wire.HEADER_SASL)
    talk.say(MECHANISMS, kind=wire.FRAME_SASL)
    if mechanism == "EXTERNAL":
        assert talk.notes.ends == ["it offers no login by EXTERNAL"]
        return
    ((init, _),) = talk.said()
    assert isinstance(init, p.SaslInit)
    assert (init.mechanism, init.initial_response or b"") == (mechanism, response)


@pytest.mark.parametrize(
    ("header", "why"),
    [(b"AMQP\x00\x00\x09\x01", "it is no AMQP 1.0 broker"), (b"HTTP/1.1", "it is no AMQP 1.0 broker")],
)
def test_another_protocol_is_told(header: bytes, why: str) -> None:
    talk = Talk(is_open=False)
    talk.hear(header)
    assert talk.client.closed
    assert talk.notes.ends[0].startswith(why)


def test_a_refused_login_is_told_without_the_password() -> None:
    talk = Talk(is_open=False)
    talk.hear(wire.HEADER_SASL)
    talk.say(MECHANISMS, kind=wire.FRAME_SASL)
    talk.say(p.SaslOutcome(code=1), kind=wire.FRAME_SASL)
    assert talk.notes.ends == ["it refuses the login of user 'shop'"]
    assert "sesame" not in repr(LOGIN)


def test_a_handshake_that_takes_too_long_ends() -> None:
    talk = Talk(is_open=False)
    assert talk.client.deadline() == 30.0
    talk.client.on_deadline(30.0)
    assert talk.client.closed
    assert talk.notes.ends[0].startswith("the handshake took too long")


def test_a_link_that_is_refused_says_why() -> None:
    talk = Talk(is_open=False)
    talk.greet()
    talk.say(OPEN)
    talk.say(BEGIN)
    talk.say(p.Attach(name="s", handle=5, role=False, initial_delivery_count=0))
    assert (talk.notes.told, talk.notes.ends) == ([], [])
    talk.say(
        p.Detach(handle=5, closed=True, error=p.Error(condition="amqp:not-found", description="no queue q"))
    )
    assert talk.notes.ends == ["amqp:not-found: no queue q"]


# What a sender sends.


def frames_of(talk: Talk) -> list[tuple[int | None, bool, int]]:
    """Delivery id, `more` and size of the payload of each transfer."""
    found = []
    for performative, payload in talk.said():
        assert isinstance(performative, p.Transfer)
        found.append((performative.delivery_id, performative.more, len(payload)))
    return found


def test_a_sender_has_room_when_there_are_credit_and_a_window() -> None:
    talk = Talk(SENDING)
    assert (talk.client.has_room(), talk.client.message_max) == (False, 900)
    talk.grant(2)
    assert talk.notes.told == ["room"]
    for number in range(2):
        assert talk.client.has_room()
        assert talk.client.send(b"x", settled=False) == number
    assert not talk.client.has_room()
    assert frames_of(talk) == [(0, False, 1), (1, False, 1)]


def test_a_message_is_cut_to_the_brokers_frames_and_waits_for_its_window() -> None:
    talk = Talk(SENDING)
    talk.grant(10, window=2)
    talk.client.send(bytes(1500), settled=True)
    first = frames_of(talk)
    assert [more for _, more, _ in first] == [True, True]
    assert not talk.client.has_room()
    talk.grant(10, window=5, next_incoming_id=2)
    rest = frames_of(talk)
    assert [more for _, more, _ in rest][-1] is False
    assert sum(size for _, _, size in first + rest) == 1500
    assert max(size for _, _, size in first + rest) <= 512
    assert talk.client.has_room()


def test_an_empty_payload_is_one_frame() -> None:
    talk = Talk(SENDING)
    talk.grant(1)
    talk.client.send(b"", settled=True)
    assert frames_of(talk) == [(0, False, 0)]


@pytest.mark.parametrize("state", [p.Accepted(), p.Rejected(), p.Released(), p.Modified()])
@pytest.mark.parametrize("settled", [True, False])
def test_an_outcome_is_told_and_settled_if_the_broker_has_not(state: p.Record, settled: bool) -> None:
    talk = Talk(SENDING)
    talk.say(p.Disposition(role=True, first=3, last=4, settled=settled, state=state))  # type: ignore[arg-type]
    assert talk.notes.told == [(3, 4, type(state))]
    sent = [performative for performative, _ in talk.said()]
    assert sent == ([] if settled else [p.Disposition(role=False, first=3, last=4, settled=True)])


def test_a_state_on_the_way_is_no_outcome() -> None:
    talk = Talk(SENDING)
    received = p.Received(section_number=0, section_offset=0)
    talk.say(p.Disposition(role=True, first=3, state=received))
    talk.say(p.Disposition(role=False, first=3, settled=True))
    assert talk.notes.told == []
    talk.say(p.Disposition(role=True, first=3, settled=True))
    assert talk.notes.told == [(3, 3, type(None))]


def test_credit_is_given_back_when_the_broker_drains() -> None:
    talk = Talk(SENDING)
    talk.grant(5)
    talk.grant(5, drain=True)
    assert not talk.client.has_room()
    ((flow, _),) = talk.said()
    assert isinstance(flow, p.Flow)
    assert (flow.delivery_count, flow.link_credit) == (5, 0)
    talk.grant(1, delivery_count=5)
    assert talk.client.send(b"x", settled=True) == 0  # ids go on, whatever the count


# What a receiver gets.


def transfer(delivery_id: int | None = 0, more: bool = False, **fields: object) -> p.Transfer:
    tag = None if delivery_id is None else b"t"
    return p.Transfer(handle=5, delivery_id=delivery_id, delivery_tag=tag, more=more, **fields)  # type: ignore[arg-type]


def test_a_message_comes_in_pieces() -> None:
    talk = Talk()
    talk.client.want(3)
    talk.say(transfer(0, more=True), b"ab")
    talk.say(transfer(None, more=True), b"")
    talk.say(transfer(None), b"c")
    talk.say(transfer(1, message_format=8), b"d")
    assert talk.notes.told == [(0, 0, b"abc"), (1, 8, b"d")]
    assert talk.client.credit == 1


def test_a_message_that_is_aborted_is_forgotten() -> None:
    talk = Talk()
    talk.say(transfer(0, more=True), b"ab")
    talk.say(transfer(None, aborted=True))
    talk.say(transfer(1), b"c")
    assert talk.notes.told == [(1, 0, b"c")]


def test_deliveries_are_accepted_in_ranges() -> None:
    talk = Talk()
    talk.client.accept([1, 2, 3, 7])
    ranges = [(each.first, each.last, each.settled, each.role) for each, _ in talk.said()]  # type: ignore[attr-defined]
    assert ranges == [(1, 3, True, True), (7, 7, True, True)]


def test_the_window_is_told_again_when_half_of_it_is_used() -> None:
    talk = Talk()
    for number in range(WINDOW // 2):
        talk.say(transfer(number), b"x")
    ((flow, _),) = talk.said()
    assert isinstance(flow, p.Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.handle) == (7 + WINDOW // 2, WINDOW, None)


def test_a_flow_that_asks_for_one_is_answered() -> None:
    talk = Talk()
    talk.client.want(4)
    talk.out.take()
    talk.say(p.Flow(incoming_window=9, next_outgoing_id=7, outgoing_window=9, echo=True))
    ((flow, _),) = talk.said()
    assert isinstance(flow, p.Flow)
    assert (flow.link_credit, flow.delivery_count) == (4, 0)


# The end, and what a broker should not send.


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            p.Close(error=p.Error(condition="amqp:internal-error", description="oh")),
            "amqp:internal-error: oh",
        ),
        (p.Close(), "it has closed the connection"),
        (p.End(error=p.Error(condition="amqp:session:window-violation")), "amqp:session:window-violation: "),
        (p.Detach(handle=5, closed=True), "it has detached the link"),
    ],
)
def test_an_end_is_told_once_and_answered(said: p.Record, why: str) -> None:
    talk = Talk()
    talk.say(said)
    assert talk.names() == ["Close"]
    talk.say(p.Close())
    talk.client.lost()
    assert talk.client.closed
    (told,) = talk.notes.ends
    assert told.startswith(why)


def test_a_close_of_ours_waits_for_the_answer_and_hears_nothing_more() -> None:
    talk = Talk()
    talk.client.close("enough")
    assert (talk.names(), talk.notes.ends, talk.client.closed) == (["Close"], ["enough"], False)
    talk.say(transfer(), b"late")
    assert talk.notes.told == []
    talk.say(p.Close())
    assert talk.client.closed
    assert talk.names() == []


@pytest.mark.parametrize(
    "octets",
    [
        b"\xff\xff\xff\xff\x02\x00\x00\x00",  # a frame of 4 GiB
        wire.FRAME_START.pack(FRAME_MAX + 1, 2, 0, 0),
        b"\x00\x00\x00\x07\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x01\x00\x00\x00",
        wire.frame(0, b"\x00\x53"),
        wire.frame(0, OPEN.encode()),  # again
        wire.frame(0, MECHANISMS.encode(), 1),
        wire.frame(0, transfer(None).encode()),
        wire.frame(0, p.Header().encode()),
        wire.frame(0, transfer().encode() + bytes(1001)),  # more than a message may have
    ],
)
def test_what_cannot_be_read_ends_it(octets: bytes) -> None:
    talk = Talk()
    talk.hear(octets)
    assert talk.client.closed
    (told,) = talk.notes.ends
    assert told.startswith("it sent what cannot be read: ")


def test_a_message_without_end_costs_no_memory() -> None:
    talk = Talk()
    talk.say(transfer(0, more=True), bytes(900))
    for _ in range(10):
        talk.say(transfer(None, more=True), b"")
    assert len(talk.client._parts) == 1
    talk.say(transfer(None, more=True), bytes(200))
    assert talk.client.closed
    assert talk.client._parts == []


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans(), st.booleans())
def test_whatever_comes_nothing_is_raised(pieces: list[bytes], is_open: bool, sends: bool) -> None:
    talk = Talk(SENDING if sends else RECEIVING, is_open)
    for piece in pieces:
        talk.hear(piece)
        talk.say(p.Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1), piece[:0])
    talk.client.lost()
    assert len(talk.notes.ends) == 1


def test_keepalives_come_in_time_and_silence_is_given_up() -> None:
    talk = Talk()
    assert talk.client.deadline() is not None
    talk.client.on_deadline(6.0)
    talk.client.on_deadline(11.0)
    assert wire.EMPTY_FRAME in talk.out.take()
    for at in (11.0, 21.0, 31.0, 41.0):
        talk.client.on_deadline(at)
    assert talk.notes.ends == ["it was silent for more than 20 s"]
