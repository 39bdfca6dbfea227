"""Branches of distributed transactions over HTTP (`broker_core/xa/branch.py`): which are in doubt, and an end to one.

What belongs to a coordinator that does not come back waits without end. An operator may decide in its place, and the
coordinator is told so should it ever ask: that is a heuristic decision, as X/Open has it.
"""

from __future__ import annotations

from typing import Final

from broker_core.errors import NotFound
from broker_core.operations import Json
from broker_core.xa.branch import Branch, Verb, Xid, xid_in
from broker_core.xa.branches import may_decide
from protocols.http.bulk.streams import entered
from protocols.http.server.request import Asked, Level, Route

PATH: Final = "/api/leveret/branches/{vhost}"
ONE: Final = PATH + "/{xid}"


def branches(asked: Asked) -> Json:
    """Those that the user may decide about."""
    asked.only()
    return [state(each) for each in entered(asked).branches.all() if may_decide(each, asked.user)]


def commit(asked: Asked) -> Json:
    """Have what is prepared take effect."""
    return decided(asked, commit=True)


def roll_back(asked: Asked) -> Json:
    """Have what is prepared undone."""
    return decided(asked, commit=False)


def decided(asked: Asked, commit: bool) -> Json:
    """Raises IllegalState, NotFound, AccessRefused."""
    asked.only()
    branch = entered(asked).branches.find(name_in(asked), asked.user)
    branch.complete(commit)
    asked.broker.hold_answer()
    return state(branch)


def forget(asked: Asked) -> Json:
    """No coordinator will ask how it ended. Raises IllegalState, NotFound, AccessRefused."""
    asked.only()
    branch = entered(asked).branches.find(name_in(asked), asked.user)
    branch.do(Verb.FORGET)
    asked.broker.hold_answer()
    return {"forgotten": str(branch.xid)}


def name_in(asked: Asked) -> Xid:
    try:
        return xid_in(asked.arguments["xid"])
    except ValueError as error:
        raise NotFound(str(error)) from None


def state(of: Branch) -> dict[str, Json]:
    return {
        "xid": str(of.xid),
        "user": of.user,
        "state": of.state.value,
        "verdict": of.verdict.value,
        "accepted": len(of.accepted),
        "published": of.published,
        "octets": of.octets,
    }


ROUTES: Final = (
    Route("GET", PATH, Level.USER, branches),
    Route("POST", ONE + "/commit", Level.USER, commit),
    Route("POST", ONE + "/rollback", Level.USER, roll_back),
    Route("DELETE", ONE, Level.USER, forget),
)
