"""Decide which node serves a shard: the lease on its row, as pure machines. Time is passed in; nothing here waits.

    standby ── due ──> claiming ── claimed ──> recovering ── recovered ──> serving ── lapsed ──> suspended
       ^                  │ lost                   │ ended                    │ ^ <── renewed ──    │
       └──────────────────┴────────────────────────┴──────── ended ───────────┴─────────────────────┘

Safety is not here: each commit names its epoch, and the database refuses those of an earlier one. What is here makes
that one node serves, and that an owner which cannot commit stops to hand out messages before others do.

A node that stands by looks at the row from time to time. The owner changes it with every commit and, when it has none,
with a beat each second. How long it has been quiet is measured by the observer's own monotonic clock from the moment
at which the observer first saw the row as it is; no clocks of two machines are ever compared. After an error of its
own, or a pause, an observer begins to measure anew: a database that was away does not cost the owner its lease. Nor
does a standby of the database that does not answer: while the owner's commit waits for it, a claim would wait, too.

The owner measures by CLOCK_BOOTTIME, which goes on while the machine sleeps, from the moment at which it *sent* its
last successful commit. No observer can have seen that earlier, so an owner of the same speed has suspended itself
before another claims its row for being quiet.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from leveret.server.cluster.contract import HEIR, RowView

GONE_S: Final = 0.5  # quiet time after which an owner without a session counts as dead
HEIR_S: Final = 2.0  # for the node that a released row is meant for, before others take it
LOOK_S: Final = 0.25  # between two looks at the row


class NodeState(Enum):
    """The states of a node."""

    STANDBY = "standby"
    CLAIMING = "claiming"
    RECOVERING = "recovering"
    SERVING = "serving"
    SUSPENDED = "suspended"


class NodeEvent(Enum):
    """The events in the life of a node."""

    DUE = auto()  # the row is to be claimed
    CLAIMED = auto()
    LOST = auto()  # another node was quicker, or nobody knows
    RECOVERED = auto()
    LAPSED = auto()  # no successful commit for as long as the lease lasts
    RENEWED = auto()  # and one again
    ENDED = auto()  # another node has taken over, the row was released, or the node could not go on


NEXT: Final = {
    (NodeState.STANDBY, NodeEvent.DUE): NodeState.CLAIMING,
    (NodeState.CLAIMING, NodeEvent.CLAIMED): NodeState.RECOVERING,
    (NodeState.CLAIMING, NodeEvent.LOST): NodeState.STANDBY,
    (NodeState.RECOVERING, NodeEvent.RECOVERED): NodeState.SERVING,
    (NodeState.RECOVERING, NodeEvent.ENDED): NodeState.STANDBY,
    (NodeState.SERVING, NodeEvent.LAPSED): NodeState.SUSPENDED,
    (NodeState.SERVING, NodeEvent.ENDED): NodeState.STANDBY,
    (NodeState.SUSPENDED, NodeEvent.RENEWED): NodeState.SERVING,
    (NodeState.SUSPENDED, NodeEvent.ENDED): NodeState.STANDBY,
}


class Watch:
    """An observer of the row, for one node that stands by."""

    def __init__(self, node: str, ttl_s: float) -> None:
        self._node = node
        self._ttl_s = ttl_s
        self._seen: tuple[int, int, int] | None = None
        self._since = 0.0  # when the row was first seen as it is
        self._looked_at = 0.0
        self.stands_back = False  # this node has just released the row, or lost it: others come first

    def see(self, row: RowView, now: float) -> str | None:
        """Return why the row is to be claimed now, if it is. `now` is monotonic seconds."""
        signs = row.epoch, row.beat, row.number
        if signs != self._seen or now - self._looked_at > self._ttl_s or row.waits:
            self._seen, self._since = signs, now
        self._looked_at = now
        quiet_s = now - self._since
        if quiet_s > self._ttl_s:
            return f"silent for {quiet_s:.1f} s"
        if row.owner is None:
            why = "released by its owner" if row.epoch else "no node has served yet"
            return why if quiet_s >= self._patience_s(row) else None
        if not row.session and quiet_s > GONE_S:
            return "its owner's session has gone"
        return None

    def quiet_s(self, now: float) -> float:
        """Return for how long the row has been as it is, in seconds."""
        return 0.0 if self._seen is None else now - self._since

    def _patience_s(self, row: RowView) -> float:
        """Return how long a released row is left to others."""
        if row.address == HEIR + self._node:
            return 0.0
        if self.stands_back:
            return self._ttl_s
        return HEIR_S if row.address is not None and row.address.startswith(HEIR) else 0.0

    def forget(self) -> None:
        """Begin to measure anew, after an error of the observer's own."""
        self._seen = None


class OwnLease:
    """The time of one owner, from its claim to its end."""

    def __init__(self, epoch: int, ttl_s: float, now: float) -> None:
        """`now` is when the claim was sent, in seconds of CLOCK_BOOTTIME; so are all times here."""
        self.epoch = epoch
        self.renewed_at = now  # when the last successful commit or beat was sent
        self._ttl_s = ttl_s

    def renew(self, sent_at: float) -> None:
        """Note a successful commit or beat by the time at which it was sent."""
        self.renewed_at = max(self.renewed_at, sent_at)

    def age_s(self, now: float) -> float:
        """Return the age of the last sign of life, in seconds."""
        return now - self.renewed_at

    def has_lapsed(self, now: float) -> bool:
        """Return whether another node may have taken over by now."""
        return now - self.renewed_at > self._ttl_s


class NodeLease:
    """The state of one node. An event that its state does not know is a mistake of ours: KeyError."""

    def __init__(self) -> None:
        self.state = NodeState.STANDBY

    def on(self, event: NodeEvent) -> NodeState:
        self.state = NEXT[self.state, event]
        return self.state

    @property
    def is_owner(self) -> bool:
        """Return whether clients are this node's own, even if they wait."""
        return self.state in (NodeState.SERVING, NodeState.SUSPENDED)
