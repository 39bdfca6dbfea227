"""List and decide branches of distributed transactions over HTTP (`features/xa/branch.py`).

A prepared branch whose coordinator does not come back waits without end. An operator may decide in its place, and the
coordinator is told so should it ever ask: a heuristic decision, in the words of X/Open.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import NotFound
from leveret.features.xa.branch import Branch, Verb, Xid, xid_in
from leveret.features.xa.branches import Branches, may_decide
from leveret.protocols.http.bulk.streams import entered
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

PATH: Final = "/api/leveret/branches/{vhost}"
ONE: Final = PATH + "/{xid}"


def branches(request: Request) -> Json:
    """List the branches that the user may decide."""
    request.only()
    return [state(each) for each in entered(request).guest(Branches).all() if may_decide(each, request.user)]


def commit(request: Request) -> Json:
    """Commit a prepared branch."""
    return decided(request, commit=True)


def roll_back(request: Request) -> Json:
    """Roll a prepared branch back."""
    return decided(request, commit=False)


def decided(request: Request, commit: bool) -> Json:
    """Decide a prepared branch. Raises IllegalState, NotFound or AccessRefused if it cannot be decided by the user."""
    request.only()
    branch = entered(request).guest(Branches).find(name_in(request), request.user)
    branch.complete(commit)
    request.broker.hold_answer()
    return state(branch)


def forget(request: Request) -> Json:
    """Forget the decision about a branch. Raises IllegalState, NotFound or AccessRefused."""
    request.only()
    branch = entered(request).guest(Branches).find(name_in(request), request.user)
    branch.do(Verb.FORGET)
    request.broker.hold_answer()
    return {"forgotten": str(branch.xid)}


def name_in(request: Request) -> Xid:
    try:
        return xid_in(request.arguments["xid"])
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
