"""Publisher confirms (§6 of the acceptance list): what is confirmed, when, and in which frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, method_frame
from tests.amqp091.peer import channel_of, confirming

from .peer import ClientChannel, Content

PERSISTENT = BasicProperties(delivery_mode=2)
REJECTING = {"x-max-length": 1, "x-overflow": "reject-publish"}


def batch(channel: ClientChannel, keys: list[str]) -> None:
    """Publish to these queues, all in one read."""
    for key in keys:
        channel.publish("", key, key.encode(), PERSISTENT, settle=False)
    channel.peer.bench.settle()


def test_s117_the_first_publish_after_select_has_number_1() -> None:
    channel = channel_of()
    for _ in range(3):
        channel.publish("", "nowhere")
    assert channel.all() == []
    assert channel.call(m.ConfirmSelect()) == m.ConfirmSelectOk()
    channel.publish("", "nowhere")
    assert channel.all() == [m.BasicAck(1, False)]


def test_s117_every_channel_counts_for_itself() -> None:
    channel = confirming()
    other = channel.peer.channel(2)
    other.confirms()
    for each in (channel, channel, other):
        each.publish("", "nowhere")
    assert channel.all() == [m.BasicAck(1, False), m.BasicAck(2, False)]
    assert other.all() == [m.BasicAck(1, False)]


def test_s117_select_without_wait_is_not_answered() -> None:
    channel = channel_of()
    channel.send(m.ConfirmSelect(no_wait=True))
    channel.publish("", "nowhere")
    assert channel.all() == [m.BasicAck(1, False)]


def test_s118_a_channel_has_one_mode() -> None:
    transactional = channel_of()
    transactional.does(m.TxSelect())
    text = "406 PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    assert transactional.closed_with(m.ConfirmSelect()) == text
    text = "406 PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    assert confirming().closed_with(m.TxSelect()) == text


def test_s118_choosing_it_again_changes_nothing() -> None:
    channel = confirming()
    channel.publish("", "nowhere")
    channel.all()
    channel.does(m.ConfirmSelect())
    channel.publish("", "nowhere")
    assert channel.all() == [m.BasicAck(2, False)]
    channel = channel_of()
    channel.does(m.TxSelect())
    channel.publish("", "nowhere", mandatory=True)
    channel.does(m.TxSelect())
    channel.send(m.TxCommit())
    assert len(channel.all()) == 2  # what was published before is still part of the transaction


def test_s119_the_confirm_comes_when_every_queue_has_the_message() -> None:
    channel = confirming()
    for name in ("a", "b"):
        channel.declare(name, durable=True)
        channel.bind(name, "amq.fanout")
    channel.publish("amq.fanout", "", b"x", PERSISTENT)
    assert channel.all() == [m.BasicAck(1, False)]
    assert [channel.bodies(name) for name in ("a", "b")] == [[b"x"], [b"x"]]


def test_s119_one_queue_that_refuses_makes_it_a_nack_and_the_others_have_it() -> None:
    channel = confirming()
    channel.declare("full", arguments=REJECTING)
    channel.declare("free")
    for name in ("full", "free"):
        channel.bind(name, "amq.fanout")
    for _ in range(2):
        channel.publish("amq.fanout", "", b"x")
    assert channel.all() == [m.BasicAck(1, False), m.BasicNack(2, False, False)]
    assert [len(channel.bodies(name)) for name in ("full", "free")] == [1, 2]


def test_s119_without_confirms_a_refused_message_is_dropped_silently() -> None:
    channel = channel_of()
    channel.declare("full", arguments=REJECTING)
    for body in (b"1", b"2"):
        channel.publish("", "full", body, mandatory=True)
    assert channel.all() == []
    assert channel.bodies("full") == [b"1"]


def test_s120_a_batch_with_a_refused_message_in_the_middle() -> None:
    channel = confirming()
    channel.declare("q")
    channel.declare("full", arguments={**REJECTING, "x-max-length": 0})
    batch(channel, ["q", "q", "full", "q", "q"])
    assert channel.all() == [m.BasicAck(2, True), m.BasicNack(3, False, False), m.BasicAck(5, True)]


def test_s120_single_messages_between_refused_ones() -> None:
    channel = confirming()
    channel.declare("q")
    channel.declare("full", arguments={**REJECTING, "x-max-length": 0})
    batch(channel, ["full", "q", "full", "full", "q"])
    assert channel.all() == [
        m.BasicNack(1, False, False),
        m.BasicAck(2, False),
        m.BasicNack(3, False, False),
        m.BasicNack(4, False, False),
        m.BasicAck(5, False),
    ]


def answered(confirms: list[m.Method | Content]) -> dict[int, str]:
    """Number -> ack or nack; every number once, and none before its turn is due."""
    answers: dict[int, str] = {}
    outstanding_from = 1
    for confirm in confirms:
        assert isinstance(confirm, m.BasicAck | m.BasicNack)
        word = "ack" if isinstance(confirm, m.BasicAck) else "nack"
        first = outstanding_from if confirm.multiple else confirm.delivery_tag
        for number in range(first, confirm.delivery_tag + 1):
            assert number not in answers
            answers[number] = word
        outstanding_from = confirm.delivery_tag + 1
    return answers


@given(st.lists(st.lists(st.sampled_from(["q", "full", "nowhere"]), max_size=8), max_size=4))
def test_s120_every_number_is_answered_once_and_none_is_covered_wrongly(batches: list[list[str]]) -> None:
    channel = confirming()
    channel.declare("q")
    channel.declare("full", arguments={**REJECTING, "x-max-length": 0})
    confirms = []
    for keys in batches:
        batch(channel, keys)
        confirms += channel.all()
    expected = ["nack" if key == "full" else "ack" for keys in batches for key in keys]
    assert answered(confirms) == dict(enumerate(expected, 1))


def test_s120_what_was_published_before_a_method_is_confirmed_before_its_answer() -> None:
    channel = confirming()
    channel.declare("q")
    channel.publish("", "q", settle=False)
    channel.send(m.QueueDeclare("q", passive=True))
    assert channel.all() == [m.BasicAck(1, False), m.QueueDeclareOk("q", 1, 0)]


@pytest.mark.parametrize("reopen", [False, True])
def test_a_closed_channel_is_not_confirmed_to_and_neither_is_its_heir(reopen: bool) -> None:
    channel = confirming()
    channel.declare("q")
    channel.publish("", "q", b"x", settle=False)
    again = method_frame(1, m.ChannelOpen().encode()) if reopen else b""
    channel.peer.send_bytes(method_frame(1, m.ChannelClose().encode()) + again)
    closed, *opened = channel.all()
    assert closed == m.ChannelCloseOk()
    assert opened == ([m.ChannelOpenOk()] if reopen else [])
    assert channel.peer.channel(2).bodies("q") == [b"x"]


def test_a_lost_connection_keeps_what_it_published() -> None:
    channel = confirming()
    channel.declare("q")
    channel.publish("", "q", b"x", settle=False)
    channel.peer.drop()
    assert channel_of(channel.peer.bench).bodies("q") == [b"x"]


def test_consuming_on_the_channel_that_confirms() -> None:
    channel = confirming()
    channel.declare("q")
    channel.consume("q")
    channel.publish("", "q", b"x", settle=False)
    channel.publish("", "q", b"y")
    first, second, ack = channel.all()
    assert [first.body, second.body, ack] == [b"x", b"y", m.BasicAck(2, True)]
    channel.ack(2, multiple=True)
    assert channel.all() == []
