"""Signs of life: when one is due, and when there have been none for too long."""

from leveret.protocols.shared.machine.heartbeat import Heartbeat


def agreed(beat_every_s: float, silence_max_s: float) -> Heartbeat:
    heartbeat = Heartbeat(100.0)
    heartbeat.start(beat_every_s, silence_max_s)
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


def test_a_sign_is_due_when_nothing_was_written_since_we_looked_last():
    heartbeat = agreed(5.0, 0.0)
    assert not heartbeat.is_due(104.9, 7)
    assert not heartbeat.is_due(105.0, 7)  # seven bytes were written, perhaps just now
    assert heartbeat.deadline() == 110.0
    assert heartbeat.is_due(110.0, 7)
    assert not heartbeat.is_due(115.0, 15)


def test_a_peer_is_given_up_after_its_silence_and_not_before():
    heartbeat = agreed(0.0, 20.0)
    assert not heartbeat.is_missed(119.9)
    assert heartbeat.is_missed(120.0)
    heartbeat.received_at = 119.0
    assert not heartbeat.is_missed(120.0)


def test_the_silence_of_a_peer_that_is_not_read_from_means_nothing():
    heartbeat = agreed(5.0, 20.0)
    heartbeat.watching = False
    assert not heartbeat.is_missed(1e9)
    assert agreed(50.0, 20.0).deadline() == 120.0
    heartbeat.beat_at = 150.0
    assert heartbeat.deadline() == 150.0
