"""What a session tells of the commands that come, what it makes of what the peer tells, and what it all may cost."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Control
from leveret.protocols.amqp010.codec.sequences import HALF, MASK, RANGES_MAX
from leveret.protocols.amqp010.machine.contract import SessionLimits
from leveret.protocols.amqp010.machine.execution import REACH

from .session_ends import NOTHING, End, ids, names, transfer_octets

# What is complete.


def test_s239_a_flush_of_a_fresh_session_is_answered_with_three_empty_sets() -> None:
    end = End()
    end.say(c.SessionFlush(expected=True, confirmed=True, completed=True))
    assert end.heard() == [
        c.SessionExpected(NOTHING),
        c.SessionConfirmed(NOTHING),
        c.SessionCompleted(NOTHING, True),
    ]


def test_s239_a_flush_is_answered_at_once_with_what_was_asked() -> None:
    end = End()
    end.owner.hold = True
    for _ in range(4):
        end.transfer()
    end.session.complete(1)
    end.say(c.SessionFlush(completed=True))
    assert end.heard() == [c.SessionCompleted(ids((1, 1)), True)]
    end.say(c.SessionFlush(expected=True))
    assert end.heard() == [c.SessionExpected(ids((4, 4)))]
    end.say(c.SessionFlush(confirmed=True))
    assert end.heard() == [c.SessionConfirmed(ids((0, 3)))]
    end.say(c.SessionFlush())
    assert end.heard() == []


def test_s238_sync_forces_completed_as_soon_as_the_command_is_complete() -> None:
    end = End()
    end.owner.hold = True
    end.transfer()
    end.transfer(sync=True)
    end.transfer()
    assert end.settled() == []
    end.session.complete(1)
    assert end.settled() == [c.SessionCompleted(ids((1, 1)))]
    assert end.settled() == []


def test_s234_completed_carries_the_whole_set_until_the_peer_knows() -> None:
    end = End()
    for count in range(3):
        end.transfer(sync=True)
        assert end.settled() == [c.SessionCompleted(ids((0, count)))]
    end.say(c.SessionKnownCompleted(ids((0, 1))))
    end.transfer(sync=True)
    assert end.settled() == [c.SessionCompleted(ids((2, 3)))]


def test_s235_completing_through_a_command_completes_all_before_it() -> None:
    end = End()
    end.owner.hold = True
    for _ in range(5):
        end.transfer(sync=True)
    end.session.complete(4)
    end.session.complete_through(2)
    assert end.settled() == [c.SessionCompleted(ids((0, 2), (4, 4)))]
    end.session.complete_through(1)
    assert end.settled() == []


def test_s234_the_octets_of_one_range_are_those_of_any() -> None:
    for start in (0, 7, MASK - 1, MASK):
        end = End(point=start)
        end.transfer()
        end.transfer()
        assert end.settled() == [c.SessionCompleted(ids((start, (start + 1) & MASK)))]


def test_without_sync_completed_is_told_when_nothing_is_left_or_so_many_are() -> None:
    end = End(limits=SessionLimits(complete_every=3))
    end.transfer()
    end.owner.hold = True
    end.transfer()
    assert end.settled() == []
    end.owner.hold = False
    for _ in range(2):
        end.transfer()
    assert end.settled() == [c.SessionCompleted(ids((0, 0), (2, 3)))]
    end.session.complete(1)
    assert end.settled() == [c.SessionCompleted(ids((0, 3)))]


def test_s238_execution_sync_completes_when_everything_before_it_has() -> None:
    end = End()
    end.owner.hold = True
    end.transfer()
    end.command(c.ExecutionSync(), sync=True)
    end.transfer()
    assert end.settled() == []
    end.session.complete(0)
    assert end.settled() == [c.SessionCompleted(ids((0, 1)))]


def test_s236_a_result_comes_before_the_mark() -> None:
    end = End()
    end.owner.hold = True
    end.command(c.MessageAcquire(ids((0, 0))), sync=True)
    end.session.result(0, c.Acquired(ids((0, 0))))
    end.session.complete(0)
    assert end.settled() == [c.ExecutionResult(0, c.Acquired(ids((0, 0)))), c.SessionCompleted(ids((0, 0)))]


def test_s240_a_result_after_completion_is_our_own_mistake() -> None:
    end = End()
    end.command(c.MessageAcquire(ids((0, 0))))
    with pytest.raises(ValueError, match="complete"):
        end.session.result(0, c.Acquired(NOTHING))


def test_more_ranges_than_a_set_can_hold_are_told_in_part() -> None:
    end = End()
    end.owner.hold = True
    count = 2 * RANGES_MAX + 10
    for _ in range(count):
        end.transfer()
    for id in range(1, count, 2):
        end.session.complete(id)
    (completed,) = end.settled()
    assert isinstance(completed, c.SessionCompleted)
    assert completed.commands is not None
    assert completed.commands.range_count == RANGES_MAX


# What the peer has completed.


def test_s235_what_the_peer_completes_is_told_once() -> None:
    end = End()
    for _ in range(5):
        end.session.send_transfer(transfer_octets(), None, b"m")
    end.say(c.SessionCompleted(ids((0, 1))), c.SessionCompleted(ids((0, 1), (3, 3))))
    end.say(c.SessionCompleted(ids((0, 3))), c.SessionCompleted(NOTHING), c.SessionCompleted())
    assert end.owner.completed == [0, 1, 3, 2]


def test_a_timely_reply_is_known_completed_with_the_same_set() -> None:
    end = End()
    end.session.send(c.TxSelect())
    end.heard()
    end.say(c.SessionCompleted(ids((0, 0)), True), c.SessionCompleted(NOTHING, True))
    assert end.heard() == [c.SessionKnownCompleted(ids((0, 0))), c.SessionKnownCompleted(NOTHING)]


def test_s240_a_result_for_what_the_peer_has_completed_is_refused() -> None:
    end = End()
    end.session.send(c.TxSelect())
    end.session.send(c.TxSelect())
    end.command(c.ExecutionResult(1, c.Acquired(NOTHING)))
    assert end.owner.told[-1] == "result 1 message.acquired"
    end.say(c.SessionCompleted(ids((0, 0))))
    end.heard()
    end.command(c.ExecutionResult(0, c.Acquired(NOTHING)))
    assert names(end.heard()) == "completed exception detach"


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("completed, and never sent", c.SessionCompleted(ids((0, 2)))),
        ("completed, and far away", c.SessionCompleted(ids((HALF - 1, HALF - 1)))),
        ("confirmed, and never sent", c.SessionConfirmed(ids((2, 2)))),
        ("known to be complete, and never received", c.SessionKnownCompleted(ids((0, 3)))),
        ("a command left out", c.SessionCommandPoint(4, 0)),
        ("half way round", c.SessionCommandPoint(3 + HALF, 0)),
        ("more than that", c.SessionCommandPoint(5 + HALF, 0)),
        ("a gap too far", c.SessionGap(ids((3 + REACH, 4 + REACH)))),
    ],
)
def test_ids_that_cannot_be_end_the_session(why: str, said: Control) -> None:
    end = End()
    for _ in range(2):
        end.session.send(c.TxSelect())
    for _ in range(3):
        end.transfer()
    end.settled()
    end.say(said)
    exception, _ = end.heard()
    assert isinstance(exception, c.ExecutionException)
    assert exception.error_code == c.ERROR_CODE_ILLEGAL_STATE
    assert (exception.class_code, exception.command_code) == (said.CLASS_CODE, said.CODE)
    assert end.owner.completed == []


def test_a_set_of_two_billion_ids_is_cut_down_to_those_that_are() -> None:
    end = End(point=0)
    for _ in range(3):
        end.session.send(c.TxSelect())
        end.transfer()
    vast = ids(((3 - HALF) & MASK, 2))
    end.say(c.SessionCompleted(vast), c.SessionKnownCompleted(vast), c.SessionConfirmed(vast))
    assert end.owner.completed == [0, 1, 2]
    end.transfer(sync=True)
    assert end.settled()[-1] == c.SessionCompleted(ids((3, 3)))


# Gaps.


def test_a_gap_drops_the_command_that_is_half_sent() -> None:
    end = End()
    end.transfer()
    end.say(c.SessionGap(ids((1, 1))))
    assert end.wire.abandoned == 1
    end.transfer(b"next")
    assert end.owner.had[-1] == (2, b"next")
    assert end.settled() == [c.SessionCompleted(ids((0, 2)))]


def test_a_gap_further_on_leaves_it_alone() -> None:
    end = End()
    end.say(c.SessionGap(ids((1, 2))), c.SessionGap())
    assert end.wire.abandoned == 0
    end.transfer()
    end.say(c.SessionCommandPoint(3, 0))
    end.transfer(b"next")
    assert [id for id, _ in end.owner.had] == [0, 3]


def test_a_gap_before_command_point_ends_the_session() -> None:
    end = End(point=None)
    end.say(c.SessionGap(ids((0, 3))))
    assert names(end.heard()) == "exception detach"


# Bounds.


def test_commands_complete_out_of_order_are_remembered_in_so_many_ranges() -> None:
    end = End(limits=SessionLimits(incomplete_max=10))
    end.owner.hold = True
    for _ in range(30):
        end.transfer()
    for id in range(1, 21, 2):
        end.session.complete(id)
    end.settled()
    assert not end.session.ended
    end.session.complete(21)
    assert names(end.settled()) == "completed exception detach"
    assert end.session.ended


def test_what_the_peer_completes_out_of_order_is_remembered_in_so_many_ranges() -> None:
    end = End(limits=SessionLimits(incomplete_max=10))
    for _ in range(30):
        end.session.send(c.TxSelect())
    end.say(c.SessionCompleted(ids(*((id, id) for id in range(1, 23, 2)))))
    end.heard()
    exception, _ = end.settled()
    assert isinstance(exception, c.ExecutionException)
    assert exception.error_code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED


def test_gaps_are_remembered_in_so_many_ranges() -> None:
    end = End(limits=SessionLimits(incomplete_max=10))
    end.say(c.SessionGap(ids(*((id, id) for id in range(1, 23, 2)))))
    assert names(end.settled()) == "exception detach"


def test_s233_a_session_goes_on_beyond_all_ids() -> None:
    """The peer never says known-completed, and completes nothing of ours."""
    end = End()
    end.transfer()
    for _ in range(6):
        point = end.session.execution.next_id
        end.say(c.SessionGap(ids((point, (point + REACH - 9) & MASK))))
        end.session.sending.next_id = (end.session.next_id + REACH) & MASK
        end.transfer(sync=True)
        completed = end.settled()[-1]
        assert isinstance(completed, c.SessionCompleted)
        assert completed.commands is not None
        assert completed.commands.last == end.owner.had[-1][0]
    last = (end.session.next_id - 1) & MASK
    end.say(c.SessionCompleted(ids((last, last))))
    assert end.owner.completed == [last]


def test_a_command_that_never_completes_ends_the_session_in_time() -> None:
    end = End()
    end.owner.hold = True
    end.transfer()
    for _ in range(2):
        point = end.session.execution.next_id
        end.say(c.SessionGap(ids((point, point + REACH - 9))))
    assert names(end.settled()).endswith("exception detach")


def test_room_is_that_of_the_line() -> None:
    end = End()
    end.wire.left = 77
    assert end.session.room() == 77
    end.session.detached()
    assert end.session.room() == 0


def test_s241_what_comes_and_what_goes_is_counted_apart() -> None:
    end = End(point=MASK)
    end.transfer()
    end.session.send(c.TxSelect())
    end.transfer()
    assert [id for id, _ in end.owner.had] == [MASK, 0]
    assert end.session.next_id == 1
    end.say(c.SessionCompleted(ids((0, 0))))
    assert end.settled()[-1] == c.SessionCompleted(ids((MASK, 0)))
