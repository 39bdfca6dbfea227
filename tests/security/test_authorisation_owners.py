"""What belongs to one user, while others may do everything else: its owner and administrators may, others may not.

Stagings, branches of distributed transactions and pipelines have an owner instead of a permission. Each request here
does what it is for when its owner makes it; what is refused has not happened. The matrices of permissions are in
test_authorisation_http.py and tests/amqp010/test_permission_matrix.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import pytest

from leveret.features.xa.branches import Branches
from leveret.protocols.amqp010.broker.distributed import HANDLERS
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.http.bulk import branches, pipelines, staging
from tests.amqp010 import permitted
from tests.amqp010.client import ClientSession, SessionEnded, ids
from tests.amqp010.peer import Peer
from tests.harness.bench import ClientBench

from .counter import SECRET, Counter, batch, octets_of
from .http_routes import POSITION

ALL: Final = (".*", ".*", ".*")
TAGS: Final = ("management", "policymaker", "monitoring")
OWNER, OTHER, ADMINISTRATOR = WHO = ("owner", "other", "administrator")

# HTTP.

JOB: Final = "/api/leveret/staging/%2F/job"
PREPARED, DECIDED = (f"/api/leveret/branches/%2F/1-6{n}-31" for n in (1, 2))
LAKE: Final = "/api/leveret/pipelines/%2F/lake"
REPORT: Final = {"batch": 0, "rows": 0, "partitions": [POSITION]}
REQUESTS: Final[dict[str, tuple[str, str, object]]] = {
    "look at a staging": ("GET", JOB, None),
    "stage more": ("POST", f"{JOB}/1/0/0?piece=0", batch()),
    "commit a batch": ("POST", f"{JOB}/0/commit", {"parts": [[0, 0, 1]]}),
    "drop a batch": ("DELETE", f"{JOB}/0", None),
    "forget a staging": ("DELETE", JOB, None),
    "commit a branch": ("POST", f"{PREPARED}/commit", None),
    "roll a branch back": ("POST", f"{PREPARED}/rollback", None),
    "forget a branch": ("DELETE", DECIDED, None),
    "report for a pipeline": ("PUT", LAKE, REPORT),
    "forget a pipeline": ("DELETE", LAKE, None),
}


def counter() -> Counter:
    """One where `u` owns a staging, branches and a pipeline, and `eve` may do everything but what administrators do."""
    made = Counter("none", *ALL)
    made.broker.access.add_user("eve", SECRET, TAGS)
    made.broker.access.set_permissions("eve", "/", *ALL)
    assert made.ask("PUT", LAKE, octets_of(REPORT)).status == 200
    return made


def credentials(who: str) -> str:
    return f"{ {OWNER: 'u', OTHER: 'eve', ADMINISTRATOR: 'root'}[who] }:{SECRET}"


def test_every_route_to_what_has_an_owner_is_tried() -> None:
    with_one = [*staging.ROUTES, *branches.ROUTES, *pipelines.ROUTES]
    assert len(REQUESTS) == len([route for route in with_one if route.path.count("{") > 1])


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(("method", "target", "body"), REQUESTS.values(), ids=REQUESTS)
def test_what_is_somebodys_is_for_them_and_administrators(
    method: str, target: str, body: object, who: str
) -> None:
    where = counter()
    before = where.state()
    status = where.ask(method, target, octets_of(body), credentials(who)).status
    if who == OTHER:
        assert status == 403
        assert where.state() == before
    else:
        assert status == 200


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(("path", "shown"), [("branches", b"1-61-31"), ("pipelines", b"lake")])
def test_lists_show_what_one_may_decide_or_read(path: str, shown: bytes, who: str) -> None:
    where = counter()
    where.broker.access.set_permissions("eve", "/", ".*", ".*", "^q$")
    body = where.ask("GET", f"/api/leveret/{path}/%2F", b"", credentials(who)).body
    assert (shown in body) == (who != OTHER)


# Branches over 0-10.

XID: Final = permitted.XID


@attrs.frozen
class Verb:
    """A command about a branch that `u` has worked in, and how far that branch is."""

    command: c.Command
    prepared: bool = False
    decided: bool = False  # by an operator


VERBS: Final[dict[str, Verb]] = {
    "prepare": Verb(c.DtxPrepare(XID)),
    "commit in one phase": Verb(c.DtxCommit(XID, one_phase=True)),
    "commit": Verb(c.DtxCommit(XID), prepared=True),
    "roll back": Verb(c.DtxRollback(XID), prepared=True),
    "forget": Verb(c.DtxForget(XID), prepared=True, decided=True),
    "get the timeout": Verb(c.DtxGetTimeout(XID)),
    "set the timeout": Verb(c.DtxSetTimeout(XID, 60)),
    "join": Verb(c.DtxStart(XID, join=True)),
}
OF_ONES_OWN: Final = {c.DtxSelect, c.DtxEnd, c.DtxRecover}  # a session's own, or a list


def worked(verb: Verb) -> ClientBench:
    """A branch in which `u` has published to q, and not yet decided."""
    bench = permitted.bench()
    session = permitted.user(bench)
    session.call(c.DtxSelect())
    session.call(c.DtxStart(XID))
    session.publish("q", b"in a branch")
    session.call(c.DtxEnd(XID))
    if verb.prepared:
        session.call(c.DtxPrepare(XID))
    if verb.decided:
        next(iter(bench.host.guest(Branches).all())).complete(commit=True)
    for name, tags in (("eve", TAGS), ("root", ("administrator",))):
        bench.broker.access.add_user(name, name, tags)
        bench.broker.access.set_permissions(name, "/", *ALL)
    return bench


def session_for(bench: ClientBench, who: str) -> ClientSession:
    user = {OWNER: "u", OTHER: "eve", ADMINISTRATOR: "root"}[who]
    session = Peer(bench).open(user, user).attach(f"of {user}")
    session.call(c.DtxSelect())
    return session


def state(bench: ClientBench) -> object:
    return permitted.state(bench), [
        (str(each.xid), each.state, each.timeout_s) for each in bench.host.guest(Branches).all()
    ]


def test_every_command_about_a_branch_is_tried() -> None:
    assert {type(verb.command) for verb in VERBS.values()} | OF_ONES_OWN == {*HANDLERS}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_branch_is_for_its_user_and_administrators_over_0_10(verb: Verb, who: str) -> None:
    bench = worked(verb)
    session = session_for(bench, who)
    before = state(bench)
    try:
        session.call(verb.command)
        code = None
    except SessionEnded as ended:
        code = ended.code
    assert code == (permitted.REFUSED if who == OTHER else None)
    if who == OTHER:
        assert state(bench) == before


@pytest.mark.parametrize("who", WHO)
def test_recover_lists_what_one_may_decide(who: str) -> None:
    session = session_for(worked(VERBS["commit"]), who)
    result = session.call(c.DtxRecover())
    assert isinstance(result, c.RecoverResult)
    assert bool(result.in_doubt) == (who != OTHER)


# What a session has may be answered and ended with the permission to read its queue alone.

OWN: Final[dict[str, Callable[[ClientSession], object]]] = {
    "accept": lambda session: session.accept(0),
    "release": lambda session: session.release(0),
    "reject": lambda session: session.reject(0),
    "acquire": lambda session: session.acquire(0),
    "flow": lambda session: session.flow("d", 5),
    "set-flow-mode": lambda session: session.call(c.MessageSetFlowMode("d", c.FLOW_MODE_CREDIT)),
    "flush": lambda session: session.call(c.MessageFlush("d")),
    "stop": lambda session: session.call(c.MessageStop("d")),
    "cancel": lambda session: session.call(c.MessageCancel("d")),
    "complete": lambda session: session.complete(0),
}


@pytest.mark.parametrize("act", OWN.values(), ids=OWN)
def test_what_a_session_has_is_its_own(act: Callable[[ClientSession], object]) -> None:
    bench = permitted.bench()
    session = permitted.user(bench, "", "", "^q$")
    inbox = session.subscribe("q", "d", acquire_mode=c.ACQUIRE_MODE_PRE_ACQUIRED)
    assert inbox.bodies() == [b"waits"]
    act(session)
    session.sync()
    assert not session.is_over


@pytest.mark.parametrize(
    "command", [c.MessageAccept(ids(0)), c.MessageRelease(ids(0)), c.MessageReject(ids(0))]
)
def test_what_another_session_has_cannot_be_answered(command: c.Command) -> None:
    bench = permitted.bench()
    holder = permitted.user(bench)
    assert holder.subscribe("q", "d").bodies() == [b"waits"]
    other = Peer(bench).open("u", "u").attach("another")
    other.call(command)
    assert bench.queue("q").unsettled == 1
