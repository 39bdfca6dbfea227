"""The channels of a connection: methods and contents, in every state, and what they cost."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import Method, heartbeat_frame, method_frame
from leveret.protocols.amqp091.machine.channel_input import ChannelInput, Expects
from leveret.protocols.amqp091.machine.connection import CHANNEL_STEPS, AmqpError, Tuning
from tests.harness.call_count import calls

from .machine import Peer, Unheeding, content, message, opened, publish_arguments

PROPERTIES = b"\x10\x00\x02"
PUBLISH = m.BasicPublish("exchange", "key")
ACK = method_frame(1, m.BasicAck(1).encode())


def expecting(expects: Expects) -> Peer:
    """An open connection whose channel 1 expects that."""
    peer = opened(channels=int(expects is not Expects.OPEN))
    if expects is Expects.CLOSE_OK:
        peer.connection.fail_channel(1, AmqpError(406, "for the test"))
    elif expects in (Expects.HEADER, Expects.BODY):
        peer.says((1, PUBLISH))
    if expects is Expects.BODY:
        peer.says(content(b"body")[: 20 + len(PROPERTIES)])
    peer.handler.taken()
    peer.frames()
    return peer


@pytest.mark.parametrize("expects", Expects, ids=lambda expects: expects.name)
@pytest.mark.parametrize("of", m.METHODS.values(), ids=lambda of: of.name)
def test_s027_s028_s029_every_method_on_a_channel_in_every_state(expects: Expects, of: type[Method]) -> None:
    peer = expecting(expects).says((1, of()))
    calls, heard = peer.handler.taken(), peer.hears()
    if expects is Expects.CLOSE_OK:
        assert calls == []
        assert heard == ([(1, m.ChannelCloseOk())] if of is m.ChannelClose else [])
        return
    if expects is Expects.OPEN and of is m.ChannelOpen:
        assert (calls, heard) == ([("channel_open", 1)], [(1, m.ChannelOpenOk())])
        return
    if expects is Expects.METHOD and of is m.ChannelClose:
        assert (calls, heard) == ([("channel_closed", 1)], [(1, m.ChannelCloseOk())])
        return
    if (expects is Expects.METHOD and of.to_server and of.class_id not in (10, 20)) or (
        expects is Expects.METHOD and of in (m.ChannelFlow, m.ChannelFlowOk)
    ):
        called = {m.BasicAck: [("ack", 1, 0, False)], m.BasicPublish: []}.get(of, [("method", 1, of())])
        assert (calls, heard) == (called, [])
        return
    [(channel, close)] = heard
    assert isinstance(close, m.ConnectionClose)
    assert (channel, close.reply_code) == (0, expected_code(expects, of))
    assert calls == ([] if expects is Expects.OPEN else [("channel_closed", 1)]) + [("closed",)]


def expected_code(expects: Expects, of: type[Method]) -> int:
    if expects in (Expects.HEADER, Expects.BODY):
        return 505
    if expects is Expects.OPEN or of in (m.ChannelOpen, m.ChannelCloseOk):
        return 504
    return 503


@pytest.mark.parametrize("expects", Expects, ids=lambda expects: expects.name)
@pytest.mark.parametrize("kind", [1, 2, 3, 8])
def test_every_kind_of_frame_in_every_state_of_a_channel(expects: Expects, kind: int) -> None:
    header = content(b"body")[7 : 7 + 12 + len(PROPERTIES)]
    payload = {1: m.QueuePurge("q").encode(), 2: header, 3: b"body", 8: b""}[kind]
    frame = bytes([kind, 0, 1]) + len(payload).to_bytes(4, "big") + payload + b"\xce"
    peer = expecting(expects).says(frame)
    heard = peer.hears()
    welcome = (expects, kind) in CHANNEL_STEPS and expects is not Expects.OPEN
    assert bool(heard) is not welcome
    if not welcome:
        assert isinstance(heard[0][1], m.ConnectionClose)
        assert heard[0][1].reply_code == (504 if expects is Expects.OPEN else 505)


def test_a_content_frame_or_a_stuffed_heartbeat_on_channel_0_is_an_unexpected_frame() -> None:
    for kind in (2, 3, 8):
        peer = opened().says(bytes([kind, 0, 0]) + b"\x00\x00\x00\x01a\xce")
        assert peer.close_heard().reply_code == 505


def test_s020_channels_are_counted_against_channel_max() -> None:
    peer = opened(channels=2, channel_max=2).says((3, m.ChannelOpen()))
    text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    assert peer.close_heard().reply_text == text
    assert ("channel_open", 3) not in peer.handler.taken()


def test_s025_s026_a_soft_error_closes_the_channel_and_names_the_method() -> None:
    peer = opened()
    peer.handler.refusals["method"] = AmqpError(404, "no queue 'q' in vhost '/'")
    close = peer.says((1, m.QueuePurge("q"))).channel_close_heard()
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")
    assert (close.failing_class_id, close.failing_method_id) == (50, 30)
    assert peer.handler.taken()[1:] == [("channel_closed", 1)]


@pytest.mark.parametrize("what", ["ack", "publish", "method"])
def test_s026_a_hard_error_from_any_call_closes_the_connection(what: str) -> None:
    peer = opened()
    peer.handler.refusals[what] = AmqpError(540, "no")
    said = {"ack": ACK, "publish": message(b"x"), "method": method_frame(1, m.TxSelect().encode())}
    close = peer.says(said[what]).close_heard()
    assert (close.reply_code, close.failing_class_id) == (540, 90 if what == "method" else 60)
    assert peer.handler.taken()[1:] == [("channel_closed", 1), ("closed",)]


@pytest.mark.parametrize("frame_max", [131_072, 4096])
def test_s029_after_an_error_the_channel_drops_everything_until_close_ok(frame_max: int) -> None:
    peer = opened()
    peer.handler.refusals["publish"] = AmqpError(404, "no exchange 'exchange' in vhost '/'")
    late = message(b"x" * 5000, frame_max=frame_max)
    peer.says(
        late, late, late, (1, m.BasicAck(1)), (1, m.QueueDeclare("q")), method_frame(1, b"\xff\xff\xff\xff")
    )
    assert [call[0] for call in peer.handler.taken()] == ["publish", "channel_closed"]
    close = peer.channel_close_heard()
    assert (close.failing_class_id, close.failing_method_id) == (60, 40)
    peer.handler.refusals.clear()
    peer.says((1, m.ChannelCloseOk()), (1, m.ChannelOpen()), message(b"again"))
    assert peer.hears() == [(1, m.ChannelOpenOk())]
    assert [call[0] for call in peer.handler.taken()] == ["channel_open", "publish"]


def test_s029_closes_that_cross_are_both_answered() -> None:
    peer = opened()
    peer.connection.fail_channel(1, AmqpError(406, "consumer timeout"))
    peer.says((1, m.ChannelClose()), (1, m.ChannelCloseOk()), (1, m.ChannelOpen()))
    assert [type(method) for _, method in peer.hears()] == [m.ChannelClose, m.ChannelCloseOk, m.ChannelOpenOk]


def test_s030_an_error_on_one_channel_leaves_the_others_working() -> None:
    peer = opened(channels=2)
    peer.says(message(b"one", channel=2))
    peer.connection.fail_channel(1, AmqpError(406, "no"))
    peer.says(message(b"two", channel=2), message(b"lost", channel=1))
    assert [call[4] for call in peer.handler.taken() if call[0] == "publish"] == [b"one", b"two"]


def test_a_channel_that_is_refused_ends_the_connection_and_was_never_open() -> None:
    for code in (406, 530):
        peer = opened(channels=0)
        peer.handler.refusals["channel_open"] = AmqpError(code, "too many")
        close = peer.says((1, m.ChannelOpen())).close_heard()
        assert (close.reply_code, close.failing_class_id) == (code, 20)
        assert peer.handler.taken() == [("channel_open", 1), ("closed",)]


def test_fail_channel_with_a_hard_code_ends_the_connection_and_without_a_channel_nothing() -> None:
    peer = opened()
    peer.connection.fail_channel(9, AmqpError(406, "nobody"))
    assert peer.hears() == []
    peer.connection.fail_channel(1, AmqpError(541, "broken"))
    assert peer.close_heard().reply_code == 541


def test_nothing_is_sent_on_a_channel_or_connection_that_ended() -> None:
    peer = opened()
    peer.connection.send(1, m.BasicCancel("tag", True))
    peer.frames()
    peer.connection.fail_channel(1, AmqpError(406, "no"))
    peer.frames()
    for channel in (1, 2):
        peer.connection.send(channel, m.BasicCancel("tag", True))
    peer.connection.lost()
    peer.connection.send(0, m.ConnectionUnblocked())
    assert peer.hears() == []


def test_a_publish_keeps_its_bytes_and_repeats_the_same_object() -> None:
    peer = opened(channels=2)
    peer.says(
        message(b"a"), message(b"b"), message(b"c", channel=2), message(b"d"), message(b"e", key="other")
    )
    publishes = [call[2] for call in peer.handler.calls]
    assert publishes[0] == publish_arguments()
    assert publishes[0] is publishes[1] is publishes[3]
    assert publishes[4] == publish_arguments("other")
    assert [call[4] for call in peer.handler.calls] == [b"a", b"b", b"c", b"d", b"e"]


def test_contents_of_several_channels_may_be_mixed() -> None:
    peer = opened(channels=2)
    first, second = (method_frame(number, PUBLISH.encode()) for number in (1, 2))
    head = 8 + 12 + len(PROPERTIES)
    one, two = content(b"one"), content(b"two", channel=2)
    peer.says(first, second, two[:head], heartbeat_frame(), one[:head], one[head:], two[head:])
    assert [(call[1], call[4]) for call in peer.handler.taken()] == [(1, b"one"), (2, b"two")]


def test_a_content_belongs_to_the_publish_of_its_channel_not_to_the_last_one() -> None:
    peer = opened(channels=2)
    first, second = (method_frame(number, PUBLISH.encode()) for number in (1, 2))
    peer.says(first + second + content(b"one") + content(b"two", channel=2))
    assert [(call[1], call[4]) for call in peer.handler.taken()] == [(1, b"one"), (2, b"two")]
    close = peer.says(first + content(b"stray", channel=2)).close_heard()
    assert close.reply_text == "UNEXPECTED_FRAME - expected method frame, got non method frame instead"


def test_s023_what_is_not_the_expected_content_is_an_unexpected_frame() -> None:
    header = "expected content header for class 60, got "
    body = "expected content body, got non content body frame instead"
    wrong_class = content(b"x").replace(b"\x00\x3c\x00\x00", b"\x00\x32\x00\x00", 1)
    for said, text in (
        (method_frame(1, PUBLISH.encode()) + content(b"x")[23:], header + "non content header frame instead"),
        (method_frame(1, PUBLISH.encode()) * 2, header + "non content header frame instead"),
        (method_frame(1, PUBLISH.encode()) + wrong_class, header + "one for class 50 instead"),
        (method_frame(1, PUBLISH.encode()) + content(b"x")[:23] * 2, body),
    ):
        close = opened().says(said).close_heard()
        assert (close.reply_code, close.reply_text) == (505, f"UNEXPECTED_FRAME - {text}")
        assert (close.failing_class_id, close.failing_method_id) == (60, 40)


def test_a_content_without_publish_is_an_unexpected_frame() -> None:
    close = opened().says(content(b"x")).close_heard()
    assert close.reply_text == "UNEXPECTED_FRAME - expected method frame, got non method frame instead"


def test_a_content_header_with_weight_or_too_short_is_a_syntax_error() -> None:
    weighty = content(b"x").replace(b"\x00\x3c\x00\x00", b"\x00\x3c\x00\x01", 1)
    short = b"\x02\x00\x01\x00\x00\x00\x0d" + bytes(13) + b"\xce"
    for said in (weighty, short):
        assert opened().says((1, PUBLISH), said).close_heard().reply_code == 502


def test_x007_more_body_than_declared_is_a_frame_error() -> None:
    longer = content(b"x" * 5).replace(
        b"\x00\x00\x00\x00\x00\x00\x00\x05", b"\x00\x00\x00\x00\x00\x00\x00\x04", 1
    )
    close = opened().says((1, PUBLISH), longer).close_heard()
    assert close.reply_text == "FRAME_ERROR - content body frame exceeds remaining content size"


def test_s024_an_empty_body_comes_without_a_frame_and_empty_frames_do_no_harm() -> None:
    peer = opened().says(message(b""), (1, PUBLISH), content(b"xy")[:23])
    for part in (b"", b"x", b"", b"y"):
        peer.says(b"\x03\x00\x01" + len(part).to_bytes(4, "big") + part + b"\xce")
    assert [call[4] for call in peer.handler.taken()] == [b"", b"xy"]


def test_s092_a_body_that_is_too_large_is_refused_by_its_header_and_dropped() -> None:
    peer = opened(Tuning(body_size_max=1000))
    peer.says(message(b"x" * 1000), message(b"x" * 1001))
    close = peer.channel_close_heard()
    text = "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000 (limits.message_size_max)"
    assert (close.reply_code, close.reply_text) == (406, text)
    assert [call[0] for call in peer.handler.taken()] == ["publish", "channel_closed"]


@pytest.mark.parametrize("read", [1000, 65_536, 10**9])
def test_a_large_body_in_many_frames_comes_whole(read: int) -> None:
    body = bytes(range(256)) * 4096
    octets = message(body, frame_max=131_072)
    peer = opened()
    for at in range(0, len(octets), read):
        peer.says(octets[at : at + read])
    assert peer.handler.taken() == [("publish", 1, publish_arguments(), PROPERTIES, body)]


@pytest.mark.parametrize("size", [16_383, 16_384, 16_385, 40_000])
def test_a_large_body_may_be_cut_anywhere(size: int) -> None:
    """Into two or three reads, near every joint of its frames, with another message in front and one behind."""
    bodies = [b"before", bytes(range(256)) * (size // 256) + b"x" * (size % 256), b"behind"]
    octets = b"".join(map(message, bodies))
    begin, end = len(message(bodies[0])), len(octets) - len(message(bodies[2]))
    cuts = [*range(begin - 2, begin + 70), begin + size // 2, *range(end - 4, end + 30)]
    expected = [("publish", 1, publish_arguments(), PROPERTIES, body) for body in bodies]
    for first, second in [*zip(cuts, cuts, strict=True), *zip(cuts, cuts[40:], strict=False)]:
        peer = opened().says(octets[:first], octets[first:second]).says(octets[second:])
        assert peer.handler.taken() == expected, (first, second)
        peer = opened().says(octets[:first]).says(octets[first:second]).says(b"").says(octets[second:])
        assert peer.handler.taken() == expected, (first, second)


def test_a_large_body_whose_frame_does_not_end_with_ce_is_lost_framing_in_pieces_too() -> None:
    octets = message(b"x" * 50_000)[:-1] + b"\xcf" + message(b"never")
    for cut in (30_000, len(message(b"x" * 50_000)) - 1):
        peer = opened().says(octets[:cut]).says(octets[cut:])
        assert (peer.close_heard().reply_code, peer.gone()) == (501, True)
        assert [call[0] for call in peer.handler.taken()] == ["channel_closed", "closed"]


def test_a_large_body_of_a_channel_that_failed_meanwhile_is_dropped() -> None:
    octets = message(b"x" * 50_000)
    peer = opened(channels=2).says(octets[:30_000])
    peer.connection.fail_channel(1, AmqpError(406, "for the test"))
    peer.says(octets[30_000:] + message(b"other", channel=2))
    assert [call[:2] for call in peer.handler.taken()] == [("channel_closed", 1), ("publish", 2)]


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.sampled_from(["a", "b"]), st.integers(1, 2)), max_size=12)
)
def test_messages_arrive_as_sent_however_they_are_cut(sent: list[tuple[bytes, str, int]]) -> None:
    octets = b"".join(message(body, key, channel=channel, frame_max=108) for body, key, channel in sent)
    expected = [("publish", channel, publish_arguments(key), PROPERTIES, body) for body, key, channel in sent]
    for step in (7, 100, len(octets) + 1):
        peer = opened(channels=2)
        for at in range(0, len(octets), step):
            peer.says(octets[at : at + step])
        assert peer.handler.taken() == expected


@given(
    st.lists(st.tuples(st.sampled_from([1, 1, 1, 2]), st.integers(0, 2**64 - 1), st.booleans()), max_size=12)
)
def test_acks_arrive_as_sent_however_they_are_cut(sent: list[tuple[int, int, bool]]) -> None:
    octets = b"".join(
        method_frame(channel, m.BasicAck(tag, multiple).encode()) for channel, tag, multiple in sent
    )
    for step in (1, 50, len(octets) + 1):
        peer = opened(channels=2)
        for at in range(0, len(octets), step):
            peer.says(octets[at : at + step])
        assert peer.handler.taken() == [("ack", *each) for each in sent]


def python_calls_of_receive(peer: Peer, octets: bytes) -> int:
    return calls(partial(peer.connection.receive, octets, 1.0)).total()


PER_READ = 5  # and fewer where they are compiled: receive, closed, _take, _take_greeting, _take_frames


def test_an_ack_costs_one_python_call_at_most_which_is_the_handlers() -> None:
    peer = opened(channels=2, traffic=Unheeding()).says(ACK)
    other = method_frame(2, m.BasicAck(1).encode())
    assert python_calls_of_receive(peer, (ACK + other) * 500) <= PER_READ + 1000


def test_single_acks_of_one_channel_cost_two_calls_together() -> None:
    peer = opened(traffic=Unheeding()).says(ACK)
    assert python_calls_of_receive(peer, ACK * 1000) <= PER_READ + 2


def test_a_message_costs_one_python_call_at_most_which_is_the_handlers() -> None:
    """None if it takes runs: a run costs four, one more if its publishes differ, and one if nothing is taken.

    A message alone costs one more, as the first of each read here.
    """
    one, other = message(b"x" * 100), message(b"x" * 100, key="other")
    peer = opened(traffic=Unheeding()).says(one)
    assert python_calls_of_receive(peer, (one + other) * 500) <= PER_READ + 7 + 1000
    assert python_calls_of_receive(peer, one * 1000) <= PER_READ + 2 + 5 + 998


def test_a_message_with_a_new_target_costs_no_more() -> None:
    peer = opened(traffic=Unheeding())
    octets = b"".join(message(b"x" * 100, key=str(number)) for number in range(1000))
    assert python_calls_of_receive(peer, octets) <= PER_READ + 7 + 1000


def test_a_channel_starts_by_expecting_to_be_opened() -> None:
    assert ChannelInput(1).expects is Expects.OPEN
