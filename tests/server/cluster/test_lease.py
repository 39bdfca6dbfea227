"""The lease: what a node does next, for every state and event, and when an observer claims the row."""

from __future__ import annotations

from itertools import product

import pytest

from leveret.server.cluster.lease import (
    GONE_S,
    HEIR_S,
    NEXT,
    NodeEvent,
    NodeLease,
    NodeState,
    OwnLease,
    Watch,
)
from tests.server.cluster.rows import Row

TTL_S = 5.0
OWNED = Row(3, 10, 20, "a", "a:5680")


@pytest.mark.parametrize(("state", "event"), list(product(NodeState, NodeEvent)))
def test_every_event_leads_to_the_state_of_the_table_or_is_refused(
    state: NodeState, event: NodeEvent
) -> None:
    lease = NodeLease()
    lease.state = state
    if (state, event) in NEXT:
        assert lease.on(event) is NEXT[state, event] is lease.state
    else:
        with pytest.raises(KeyError):
            lease.on(event)
        assert lease.state is state


def test_a_life_goes_through_every_state() -> None:
    lease = NodeLease()
    seen = [
        lease.on(event) for event in (NodeEvent.DUE, NodeEvent.CLAIMED, NodeEvent.RECOVERED, NodeEvent.LAPSED)
    ]
    assert [NodeState.STANDBY, *seen] == list(NodeState)
    assert lease.is_owner
    assert lease.on(NodeEvent.ENDED) is NodeState.STANDBY
    assert not lease.is_owner


def watch(stands_back: bool = False) -> Watch:
    made = Watch("b", TTL_S)
    made.stands_back = stands_back
    return made


def test_a_row_that_changes_is_left_alone_for_ever() -> None:
    observer = watch()
    for at in range(100):
        assert observer.see(Row(3, at // 4, 0, "a"), at * 1.0) is None


@pytest.mark.parametrize("sign", ["epoch", "beat", "number"])
def test_every_sign_of_life_counts(sign: str) -> None:
    observer = watch()
    assert observer.see(OWNED, 0.0) is None
    assert observer.see(OWNED, TTL_S - 0.1) is None
    changed = {"epoch": OWNED.epoch, "beat": OWNED.beat, "number": OWNED.number}
    changed[sign] += 1
    assert observer.see(Row(**changed, owner="a"), TTL_S) is None
    assert observer.see(Row(**changed, owner="a"), TTL_S + TTL_S) is None
    assert observer.see(Row(**changed, owner="a"), TTL_S + TTL_S + 0.1) == "silent for 5.1 s"


def test_a_silent_owner_is_succeeded_only_after_the_lease() -> None:
    observer = watch()
    assert [observer.see(OWNED, at) for at in (100.0, 102.5, 105.0)] == [None, None, None]
    assert observer.see(OWNED, 105.1) == "silent for 5.1 s"
    assert observer.quiet_s(105.1) == pytest.approx(5.1)


def test_an_owner_without_a_session_is_succeeded_after_a_moment() -> None:
    observer, gone = watch(), Row(3, 10, 20, "a", session=False)
    assert observer.see(gone, 0.0) is None
    assert observer.see(gone, GONE_S) is None
    assert observer.see(gone, GONE_S + 0.1) == "its owner's session has gone"


def test_a_released_row_is_claimed_at_once() -> None:
    assert watch().see(Row(3, 10, 20, None), 0.0) == "released by its owner"
    assert watch().see(Row(3, 10, 20, None, "10.0.0.1:5680/00ff"), 0.0) == "released by its owner"


def test_the_node_that_released_it_leaves_the_row_to_others() -> None:
    observer, released = watch(stands_back=True), Row(3, 10, 20, None)
    assert [observer.see(released, at) for at in (0.0, 2.0, TTL_S - 0.1)] == [None] * 3
    assert observer.see(released, TTL_S) == "released by its owner"


def test_a_row_that_is_meant_for_one_node_is_left_to_it_for_a_while() -> None:
    mine, others = Row(3, 10, 20, None, "heir:b"), Row(3, 10, 20, None, "heir:c")
    assert watch().see(mine, 0.0) == "released by its owner"
    assert watch(stands_back=True).see(mine, 0.0) == "released by its owner"
    observer = watch()
    assert [observer.see(others, at) for at in (0.0, HEIR_S - 0.1)] == [None, None]
    assert observer.see(others, HEIR_S) == "released by its owner"


def test_an_error_of_the_observer_begins_the_time_anew() -> None:
    observer = watch()
    observer.see(OWNED, 0.0)
    observer.see(OWNED, 4.9)
    observer.forget()
    assert observer.quiet_s(5.0) == 0
    assert [observer.see(OWNED, at) for at in (5.2, 10.1)] == [None, None]
    assert observer.see(OWNED, 10.3) == "silent for 5.1 s"


def test_an_owner_that_waits_for_the_databases_standby_is_not_quiet() -> None:
    observer, waits = watch(), Row(3, 10, 20, "a", waits=True)
    assert all(observer.see(waits, at * 1.0) is None for at in range(60))
    assert observer.see(OWNED, 60.0) is None
    assert observer.see(OWNED, 63.0) is None


def test_an_observer_that_was_paused_begins_anew() -> None:
    observer = watch()
    observer.see(OWNED, 0.0)
    assert observer.see(OWNED, 60.0) is None


def test_an_owner_has_suspended_itself_before_its_row_is_claimed_for_being_quiet() -> None:
    tenure, observer = OwnLease(3, TTL_S, 0.0), watch()
    tenure.renew(10.0)  # sent; the observer cannot see it earlier
    tenure.renew(9.0)  # an answer that was late
    assert observer.see(OWNED, 10.0) is None
    assert observer.see(OWNED, 12.0) is None
    assert not tenure.has_lapsed(15.0)
    assert observer.see(OWNED, 15.0) is None
    assert tenure.has_lapsed(15.01)
    assert observer.see(OWNED, 15.01) is not None
    assert tenure.age_s(15.01) == pytest.approx(5.01)
