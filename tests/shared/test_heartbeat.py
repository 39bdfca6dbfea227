"""Signs of life: when one is due, and when there have been none for too long."""

from leveret.protocols.shared.machine.heartbeat import Heartbeat


def agreed(beat_every_s: float, look_every_s: float) -> Heartbeat:
    heartbeat = Heartbeat(100.0)
    heartbeat.start(beat_every_s, look_every_s)
    return heartbeat


def test_before_anything_is_agreed_there_is_nothing_to_do():
    heartbeat = Heartbeat(100.0)
    assert heartbeat.deadline() is None
    assert not heartbeat.is_due(1e9, 0)
    assert not heartbeat.is_missed(1e9)


def test_the_earlier_of_both_deadlines_counts():
    assert agreed(5.0, 20.0).deadline() == 105.0
    assert agreed(50.0, 20.0).deadline() == 120.0


def test_each_direction_may_have_none():
    assert agreed(0.0, 20.0).deadline() == 120.0
    assert agreed(5.0, 0.0).deadline() == 105.0
    assert not agreed(0.0, 20.0).is_due(1e9, 0)
    assert not agreed(5.0, 0.0).is_missed(1e9)


def test_a_sign_is_due_each_time_when_nothing_else_was_written_since_we_looked_last():
    heartbeat = agreed(5.0, 0.0)
    assert not heartbeat.is_due(104.9, 7)
    assert heartbeat.is_due(105.0, 7)  # the first one comes after the first interval, as RabbitMQ's
    heartbeat.beaten(15)
    assert heartbeat.deadline() == 110.0
    assert heartbeat.is_due(110.0, 15)  # the sign itself does not count
    heartbeat.beaten(23)
    assert not heartbeat.is_due(115.0, 30)
    assert heartbeat.is_due(120.0, 30)


def test_a_peer_is_given_up_at_the_second_look_in_a_row_that_finds_nothing():
    """So between two and three intervals after its last byte."""
    heartbeat = agreed(0.0, 20.0)
    assert not heartbeat.is_missed(119.9)
    assert not heartbeat.is_missed(120.0)
    assert heartbeat.deadline() == 140.0
    heartbeat.received_at = 121.0
    assert not heartbeat.is_missed(140.0)
    assert not heartbeat.is_missed(160.0)
    heartbeat.received_at = 161.0
    assert not heartbeat.is_missed(180.0)
    assert not heartbeat.is_missed(200.0)
    assert heartbeat.is_missed(220.0)


def test_the_silence_of_a_peer_that_is_not_read_from_means_nothing():
    heartbeat = agreed(5.0, 20.0)
    heartbeat.watching = False
    assert not heartbeat.is_missed(1e9)
    assert agreed(50.0, 20.0).deadline() == 120.0
    heartbeat.beat_at = 150.0
    assert heartbeat.deadline() == 150.0
