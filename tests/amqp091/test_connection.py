"""The connection machine: frames, endings and time, every state against every method."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import Method, heartbeat_frame, method_frame
from leveret.protocols.amqp091.machine.connection import AmqpError, Connection, State
from tests.harness.machine import must_end_at

from .machine import HEADER, Peer, Recorder, in_state, message, opened, start_ok, tune_ok

# Every state against every method.

STATES = [state for state in State if state is not State.GREETING]  # which is one of 1.0
CONNECTION_STATES = [state for state in STATES if state is not State.AWAITING_HEADER]
QUIET = (State.CLOSING, State.CLOSED)
KEEPING = (*QUIET, State.CHECKING)  # what comes is not answered, or not yet


SAID = {m.ConnectionStartOk: start_ok()[1], m.ConnectionTuneOk: tune_ok()[1]}
NEXT: dict[tuple[State, type[Method]], State] = {
    (State.STARTING, m.ConnectionStartOk): State.TUNING,
    (State.SECURING, m.ConnectionSecureOk): State.TUNING,
    (State.TUNING, m.ConnectionTuneOk): State.OPENING,
    (State.OPENING, m.ConnectionOpen): State.OPEN,
    (State.OPEN, m.ConnectionUpdateSecret): State.OPEN,
    (State.STARTING, m.ConnectionClose): State.CLOSED,
    (State.SECURING, m.ConnectionClose): State.CLOSED,
    (State.TUNING, m.ConnectionClose): State.CLOSED,
    (State.OPENING, m.ConnectionClose): State.CLOSED,
    (State.OPEN, m.ConnectionClose): State.CLOSED,
    (State.CLOSING, m.ConnectionClose): State.CLOSING,
    (State.CLOSING, m.ConnectionCloseOk): State.CLOSED,
}


@pytest.mark.parametrize("state", CONNECTION_STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("of", m.METHODS.values(), ids=lambda of: of.name)
def test_s017_s019_every_method_on_channel_0_in_every_state(state: State, of: type[Method]) -> None:
    peer = in_state(state).says((0, SAID.get(of) or of()))
    if (state, of) in NEXT:
        assert peer.connection.state is NEXT[state, of]
    elif state in KEEPING:
        assert (peer.hears(), peer.connection.state) == ([], state)
    else:
        close = peer.close_heard()
        text = f"CHANNEL_ERROR - unexpected method in connection state {state.value}"
        assert (close.reply_code, close.reply_text) == (504, text)
        assert (close.failing_class_id, close.failing_method_id) == (of.class_id, of.method_id)
        assert peer.connection.state is State.CLOSING


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
@given(octets=st.binary(max_size=80), cut=st.integers(0, 80))
def test_random_bytes_in_any_state_are_never_an_exception(state: State, octets: bytes, cut: int) -> None:
    in_state(state).says(octets[:cut]).says(octets[cut:])


FRAMES = st.builds(
    lambda kind, channel, payload: (
        bytes([kind, 0, channel]) + len(payload).to_bytes(4, "big") + payload + b"\xce"
    ),
    st.sampled_from([1, 1, 2, 3, 8]),
    st.integers(0, 2),
    st.binary(max_size=30)
    | st.builds(
        lambda key, arguments: key.to_bytes(4, "big") + arguments,
        st.sampled_from([*m.METHODS]),
        st.binary(max_size=20),
    )
    | st.sampled_from([of().encode() for of in m.METHODS.values()]),
)


@pytest.mark.parametrize("state", CONNECTION_STATES, ids=lambda state: state.name)
@given(frames=st.lists(FRAMES, max_size=8))
def test_random_frames_in_any_state_are_never_an_exception(state: State, frames: list[bytes]) -> None:
    in_state(state).says(*frames)


SESSION = b"".join(
    (
        HEADER,
        *(method_frame(channel, method.encode()) for channel, method in (start_ok(), tune_ok())),
        method_frame(0, m.ConnectionOpen("/").encode()),
        method_frame(1, m.ChannelOpen().encode()),
        method_frame(1, m.QueueDeclare("q", arguments={"x": [1, {"y": None}]}).encode()),
        message(b"first"),
        message(b"x" * 9000, frame_max=4096),
        message(b"second", properties=b"\x00\x00"),
        message(b""),
        method_frame(1, m.BasicAck(5, True).encode()),
        heartbeat_frame(),
        method_frame(1, m.ChannelClose().encode()),
        method_frame(0, m.ConnectionClose(200, "bye").encode()),
    )
)


@given(
    st.lists(st.tuples(st.integers(0, len(SESSION) - 1), st.integers(0, 255)), max_size=4),
    st.integers(1, 600),
)
def test_a_session_with_mutated_octets_is_never_an_exception(
    changes: list[tuple[int, int]], step: int
) -> None:
    octets = bytearray(SESSION)
    for at, octet in changes:
        octets[at] = octet
    peer = Peer()
    for at in range(0, len(octets), step):
        peer.says(bytes(octets[at : at + step]))
    peer.connection.lost()
    calls = peer.handler.taken()
    assert calls.count(("closed",)) == 1
    opens = Counter(call[1] for call in calls if call[0] == "channel_open")
    assert opens == Counter(call[1] for call in calls if call[0] == "channel_closed")


def whole_session() -> tuple[list[tuple[object, ...]], bytes]:
    peer = Peer().says(SESSION)
    assert peer.gone()
    return peer.handler.calls, peer.outbox.data


def test_a_session_is_the_same_octet_by_octet_and_with_a_tail() -> None:
    peer, tailed = Peer(), Peer().says(SESSION + b"tail")
    for octet in SESSION:
        peer.says(bytes([octet]))
    assert (peer.handler.calls, peer.outbox.data) == whole_session()
    assert (tailed.handler.calls, tailed.outbox.data) == whole_session()


def test_a_session_is_the_same_split_at_every_place() -> None:
    expected = whole_session()
    places = [at for at in range(len(SESSION)) if not 600 < at < len(SESSION) - 400] + [*range(600, 9600, 97)]
    for at in places:
        peer = Peer().says(SESSION[:at]).says(SESSION[at:])
        assert (peer.handler.calls, peer.outbox.data) == expected


def test_s021_a_frame_longer_than_frame_max_is_refused_once_its_size_is_known() -> None:
    peer = opened()
    peer.says(b"\x03\x00\x01\x00\x02\x00\x01" + b"\0")
    close = peer.close_heard()
    assert close.reply_code == 501
    assert close.reply_text.startswith("FRAME_ERROR - type 3, channel 1: frame too large, 131073 octets")
    assert peer.gone()
    assert peer.handler.taken() == [("channel_closed", 1), ("closed",)]


def test_s021_eight_octets_of_grace() -> None:
    peer = opened(frame_max=4096)
    peer.says(message(b"x" * 4096, frame_max=4096 + 8))
    assert peer.handler.taken()[0][0] == "publish"
    peer.says(message(b"x" * 4097, frame_max=4097 + 8))
    assert peer.close_heard().reply_code == 501


def test_s022_a_frame_that_does_not_end_as_it_should_ends_the_connection() -> None:
    for frame in (method_frame(1, m.TxSelect().encode()), message(b"body")):
        peer = opened().says(frame[:-1] + b"\xcd")
        assert peer.close_heard().reply_code == 501
        assert peer.gone()


def test_x006_an_unknown_kind_of_frame_is_a_frame_error() -> None:
    peer = opened().says(b"\x04\x00\x01\x00\x00\x00\x00\xce")
    assert peer.close_heard().reply_text == "FRAME_ERROR - type 4, channel 1: unknown frame type"


def test_x006_a_heartbeat_on_a_channel_is_an_unexpected_frame() -> None:
    for number in (1, 2):
        peer = opened().says(bytes([8, 0, number]) + b"\x00\x00\x00\x00\xce")
        assert peer.close_heard().reply_code == (505 if number == 1 else 504)


def test_x010_an_unknown_or_undecodable_method_ends_the_connection_and_is_named() -> None:
    for payload, code in ((b"\x00\x3c\x03\xe7", 503), (b"\x00\x3c\x00\x14", 502), (b"\x00\x3c", 502)):
        close = opened().says(method_frame(1, payload)).close_heard()
        assert close.reply_code == code
        named = int.from_bytes(payload[2:], "big") if len(payload) == 4 else 0
        assert (close.failing_class_id, close.failing_method_id) == (60 if named else 0, named)


class Listening(Recorder):
    """Notes what had been said when the connection ended."""

    def __init__(self) -> None:
        super().__init__()
        self.peer: Peer | None = None
        self.said = b"nothing yet"

    def on_closed(self) -> None:
        super().on_closed()
        assert self.peer is not None
        self.said = self.peer.outbox.data


def test_s018_close_ends_channels_and_belongings_before_close_ok() -> None:
    handler = Listening()
    peer = handler.peer = opened(channels=2, handler=handler)
    peer.says((0, m.ConnectionClose(200, "bye")), message(b"too late"))
    assert handler.said == b""
    assert peer.handler.taken() == [("channel_closed", 1), ("channel_closed", 2), ("closed",)]
    assert peer.hears() == [(0, m.ConnectionCloseOk())]
    assert peer.gone()
    assert peer.connection.ended_because == "the client closed it: 200 bye"


def test_s019_while_closing_only_close_and_close_ok_are_heard() -> None:
    peer = opened()
    peer.connection.fail(AmqpError(320, "going down"))
    assert peer.close_heard().reply_text == "CONNECTION_FORCED - going down"
    peer.handler.taken()
    peer.says(
        (1, m.QueueDeclare("q")), message(b"late"), (2, m.ChannelOpen()), (0, m.TxSelect()), heartbeat_frame()
    )
    assert (peer.handler.taken(), peer.hears()) == ([], [])
    peer.says((0, m.ConnectionClose()))
    assert peer.hears() == [(0, m.ConnectionCloseOk())]
    assert not peer.gone()
    peer.says((0, m.ConnectionCloseOk()))
    assert peer.gone()


def test_x009_an_operator_closes_a_connection_before_it_is_open_too() -> None:
    peer = in_state(State.AWAITING_HEADER)
    peer.connection.fail(AmqpError(320, "going down"))
    assert (peer.hears(), peer.gone()) == ([], True)


def test_a_handler_may_end_things_from_inside_its_calls() -> None:
    for name, said in (
        ("on_publish", message(b"x") + message(b"y")),
        ("on_method", method_frame(1, m.ChannelFlow().encode())),
        ("on_channel_open", method_frame(2, m.ChannelOpen().encode())),
        ("on_channel_closed", method_frame(1, m.ChannelClose().encode())),
    ):
        peer = opened()

        def end(*_: object, connection: Connection = peer.connection) -> None:
            connection.fail(AmqpError(320, "enough"))

        setattr(peer.handler, name, end)
        assert peer.says(said).close_heard().reply_code == 320
        assert [call[0] for call in peer.handler.taken()].count("closed") == 1
    for state, name, said in (
        (State.STARTING, "on_start_ok", method_frame(0, start_ok()[1].encode())),
        (State.OPENING, "on_open", method_frame(0, m.ConnectionOpen("/").encode())),
    ):
        peer = in_state(state)
        setattr(peer.handler, name, lambda *_, c=peer.connection: c.fail(AmqpError(320, "enough")))
        assert peer.says(said).close_heard().reply_code == 320


def test_a_mistake_of_ours_in_the_middle_of_an_end_ends_it_all_the_same() -> None:
    peer = opened(channels=3)

    def mistaken(channel: int) -> None:
        raise RuntimeError(channel)

    peer.handler.on_channel_closed = mistaken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        peer.says((0, m.ConnectionClose(200, "bye")))
    assert peer.gone()
    peer.connection.receive(method_frame(1, m.TxSelect().encode()), 1.0)
    peer.connection.lost()
    assert peer.hears() == []
    assert peer.handler.taken() == []


def test_lost_ends_everything_once() -> None:
    for state in STATES:
        peer = in_state(state)
        peer.connection.lost()
        peer.connection.lost()
        assert peer.gone()
        calls = peer.handler.taken()
        assert calls.count(("closed",)) == (0 if state in QUIET else 1)
        assert peer.hears() == []


def test_update_secret_is_answered_when_the_handler_agreed() -> None:
    peer = opened().says((0, m.ConnectionUpdateSecret(b"new", "expired")))
    assert peer.handler.taken() == [("update_secret", b"new", "expired")]
    assert peer.hears() == [(0, m.ConnectionUpdateSecretOk())]
    peer.handler.refusals["update_secret"] = AmqpError(530, "New secret was refused by one of the backends")
    assert peer.says((0, m.ConnectionUpdateSecret(b"new", "expired"))).close_heard().failing_method_id == 70


def test_s013_a_heartbeat_is_sent_when_idle_for_half_the_interval() -> None:
    peer = opened(heartbeat=10)
    assert peer.connection.deadline() == 5.0
    peer.connection.on_deadline(5.0)
    peer.frames()
    peer.says(heartbeat_frame())
    peer.connection.on_deadline(10.0)
    assert peer.frames() == [(8, 0, b"")]
    peer.connection.send(1, m.BasicCancel("tag"))
    peer.frames()
    peer.connection.on_deadline(14.9)
    peer.connection.on_deadline(15.0)
    assert peer.frames() == []
    assert peer.connection.deadline() == 20.0


def test_s013_a_peer_is_dropped_at_the_second_look_in_a_row_that_finds_nothing() -> None:
    peer = opened(heartbeat=10)
    peer.now = 7.0
    peer.says(b"\x08")
    for now in (10.0, 20.0, 29.9):
        peer.connection.on_deadline(now)
        assert not peer.gone()
    peer.frames()
    peer.connection.on_deadline(30.0)
    assert (peer.gone(), peer.frames(), peer.connection.deadline()) == (True, [], None)
    assert peer.handler.taken() == [("channel_closed", 1), ("closed",)]
    assert peer.connection.ended_because == "missed heartbeats from client, timeout: 10s"


def test_s013_an_interval_of_0_disables_heartbeats() -> None:
    peer = opened(heartbeat=0)
    assert peer.connection.deadline() is None
    peer.connection.on_deadline(1e9)
    assert (peer.gone(), peer.frames()) == (False, [])


def test_x045_silence_means_nothing_while_the_peer_is_not_read_from() -> None:
    peer = opened(heartbeat=10)
    peer.connection.pause_monitor()
    peer.connection.on_deadline(100.0)
    assert not peer.gone()
    peer.connection.resume_monitor(100.0)
    for now in (100.0, 110.0, 119.9):
        peer.connection.on_deadline(now)
        assert not peer.gone()
    peer.connection.on_deadline(120.0)
    assert peer.gone()


def test_a_close_ok_that_never_comes_is_not_waited_for_long() -> None:
    peer = opened(heartbeat=0)
    peer.connection.fail(AmqpError(320, "going down"))
    assert peer.connection.deadline() == 0.0
    peer.connection.on_deadline(1000.0)
    must_end_at(peer, 1010.0)
    peer.connection.on_deadline(2000.0)


def test_a_client_that_wants_to_know_is_told_that_it_is_blocked() -> None:
    peer = opened()
    peer.connection.blocked("low on memory")
    peer.connection.unblocked()
    peer.connection.unblocked()
    assert peer.hears() == [(0, m.ConnectionBlocked("low on memory")), (0, m.ConnectionUnblocked())]


def test_a_client_that_is_blocked_before_it_is_open_is_told_after_open_ok() -> None:
    peer = in_state(State.OPENING)
    peer.connection.blocked("low on disk")
    peer.says((0, m.ConnectionOpen("/")))
    assert peer.hears() == [(0, m.ConnectionOpenOk()), (0, m.ConnectionBlocked("low on disk"))]


def test_a_client_without_the_capability_is_not_told() -> None:
    peer = in_state(State.STARTING).says(start_ok({}), tune_ok(), (0, m.ConnectionOpen("/")))
    peer.frames()
    peer.connection.blocked("low on memory")
    peer.connection.unblocked()
    assert peer.hears() == []
