"""Branches over HTTP: who sees and ends them, and what a coordinator is told afterwards."""

from __future__ import annotations

import pytest

from leveret.features.xa.branch import BranchState, Verb, Verdict
from leveret.security.users import User
from leveret.values import Json
from tests.core.fakes import waiting
from tests.features.xa.branching import Crew, xid
from tests.harness.http import Response
from tests.http.stand import Asking, Stand

NAME = "/1-61-31"


class BranchStand(Stand):
    """A broker with a prepared branch of the user `reader`, and whoever asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = self.host.declare_queue("q")
        user = self.broker.access.user("reader")
        assert isinstance(user, User)
        self.crew = Crew(self.host, user)
        self.crew.work("a", sends=[("q", b"1")])
        self.crew.ask("a", Verb.PREPARE)

    def branch(self, method: str, path: str = "", user: str = "reader", host: str = "%2F") -> Response:
        asking = Asking(self.broker)
        asking.ask(path, user, method, host, "branches")
        self.broker.settle()
        return asking.response


@pytest.fixture
def stand() -> BranchStand:
    return BranchStand()


def told(state: str, verdict: str, published: int, octets: int) -> Json:
    return {
        "xid": "1-61-31",
        "user": "reader",
        "state": state,
        "verdict": verdict,
        "accepted": 0,
        "published": published,
        "octets": octets,
    }


def test_the_branches_that_a_user_may_decide_about_are_listed(stand: BranchStand) -> None:
    octets = stand.crew.branch("a").octets
    assert octets > 0
    for user in ("reader", "writer"):
        assert stand.branch("GET", user=user).json == [told("prepared", "ok", 1, octets)]
    stand.broker.access.add_user("other", "sesame")
    stand.broker.access.set_permissions("other", "/", ".*", ".*", ".*")
    assert stand.branch("GET", user="other").json == []
    assert stand.branch("POST", NAME + "/commit", user="other").status == 403
    assert stand.crew.branch("a").state is BranchState.PREPARED


@pytest.mark.parametrize("user", ["reader", "writer"])
@pytest.mark.parametrize(("verb", "verdict"), [("commit", "committed"), ("rollback", "rolled back")])
def test_an_operator_ends_a_branch(stand: BranchStand, user: str, verb: str, verdict: str) -> None:
    response = stand.branch("POST", f"{NAME}/{verb}", user)
    assert response.status == 200
    assert response.json == told("heuristic", f"{verdict} by an operator", 0, 0)
    assert waiting(stand.queue) == ("1" if verb == "commit" else "")
    assert stand.branch("POST", f"{NAME}/{verb}", user).status == 409
    assert stand.crew.ask("a", Verb.COMMIT) is not Verdict.OK
    assert stand.branch("DELETE", NAME, user).json == {"forgotten": "1-61-31"}
    assert stand.branch("GET").json == []


def test_a_branch_that_may_not_be_ended_or_forgotten(stand: BranchStand) -> None:
    stand.crew.work("b")
    for verb in ("commit", "rollback"):
        assert stand.branch("POST", f"/1-62-31/{verb}").status == 409
    assert stand.branch("DELETE", NAME).status == 409
    assert stand.crew.branch("b").state is BranchState.IDLE


@pytest.mark.parametrize("name", ["/1-62-31", "/none", "/1-6-1", "/--"])
def test_a_branch_that_is_not_there(stand: BranchStand, name: str) -> None:
    assert stand.branch("POST", f"{name}/commit").status == 404
    assert stand.branch("DELETE", name).status == 404


def test_a_virtual_host_that_the_user_may_not_enter(stand: BranchStand) -> None:
    for host in ("closed", "none"):
        assert stand.branch("GET", host=host).status == 403


def test_the_name_is_that_of_the_branch(stand: BranchStand) -> None:
    assert f"/{xid('a')}" == NAME
