"""Permissions about which a server decides: when it is asked, and how long its answers hold. Time by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.clock import ManualClock, Timers
from leveret.config.config import ConfigError, parse
from leveret.errors import LimitReached
from leveret.front_end import FrontEnd
from leveret.security import remote_permissions
from leveret.security.access import Access
from leveret.security.remote_permissions import (
    PendingAnswer,
    Question,
    RemoteGrants,
    RemotePermissions,
)
from leveret.security.users import Permission, User
from leveret.server.node.held_input import HeldInput
from tests.harness.bench import ClientBench


class Server(RemotePermissions):
    """A server whose answers are at hand, unless the test holds them back."""

    def __init__(self, cache_s: float = 10, cache_refusals: bool = False) -> None:
        self.clock, self.timers = ManualClock(), Timers()
        self.access = Access()
        super().__init__(self.access, self.clock, self.timers, cache_s, cache_refusals)
        self.says: bool | None = True
        self.questions: list[Question] = []
        self.held: list[Callable[[bool | None], None]] | None = None
        self.user = User("shop", scopes=RemoteGrants(self, "shop"))

    def ask(self, question: Question, then: Callable[[bool | None], None]) -> None:
        self.questions.append(question)
        if self.held is None:
            then(self.says)
        else:
            self.held.append(then)

    def may_write(self, name: str = "x", kind: str = "exchange") -> bool:
        return self.access.allowed(self.user, "/", Permission.WRITE, name, kind)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.run(self.clock.now())


def test_an_answer_holds_for_its_time_and_then_nothing_relies_on_it_any_more():
    server = Server()
    assert server.may_write()
    assert server.may_write()
    assert server.questions == [Question("shop", "/", "exchange", "x", "write")]
    revision = server.access.revision
    server.advance(9)
    assert (server.access.revision, server.remembered) == (revision, 1)
    server.says = False
    server.advance(1)
    assert server.access.revision > revision, "what channels remember of their checks is stale"
    assert not server.may_write()
    assert server.remembered == 0


def test_refusals_are_remembered_where_that_is_wanted_and_silence_never():
    for wanted, count in ((False, 2), (True, 1)):
        server = Server(cache_refusals=wanted)
        server.says = False
        assert not server.may_write()
        assert not server.may_write()
        assert len(server.questions) == count
    server.says = None
    assert not server.may_write("other")
    assert not server.may_write("other")
    assert (len(server.questions), server.failed) == (3, 2)


def test_a_queue_and_an_exchange_of_one_name_are_two_questions():
    server = Server()
    assert server.may_write("x", "exchange")
    server.says = False
    assert not server.may_write("x", "queue")


def test_where_nothing_can_stand_still_the_answer_is_no_for_now():
    server = Server()
    server.held = []
    with pytest.raises(LimitReached):
        server.may_write()
    server.access.held_input = HeldInput(ClientBench().broker)
    with pytest.raises(LimitReached):
        server.may_write()
    server.held[0](True)
    assert server.may_write(), "it was asked all the same"
    assert len(server.questions) == 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote_permissions, "ANSWERS_MAX", 3)
    monkeypatch.setattr(remote_permissions, "ASKED_MAX", 3)
    server = Server()
    assert all(server.may_write(str(number)) for number in range(10))
    assert server.remembered == 3
    server.held = []
    for number in range(4):
        with pytest.raises(LimitReached):
            server.may_write(f"other {number}")
    assert len(server.held) == 3


class Front(FrontEnd):
    """It asks a question for each letter that comes, and notes what it has learnt."""

    def __init__(self, held: HeldInput) -> None:
        self.held = held
        self.questions: dict[str, PendingAnswer] = {}
        self.learnt: list[tuple[str, bool]] = []

    def receive(self, data: bytes, now: float) -> None:
        for letter in data.decode():
            pending = self.questions[letter] = PendingAnswer()
            self.held.wait(pending)
            self.learnt.append((letter, pending.allowed))

    def lost(self) -> None:
        """Hold nothing."""


def test_input_goes_on_where_it_stood_still_and_then_with_what_came_meanwhile():
    held = HeldInput(ClientBench().broker)
    one, other = Front(held), Front(held)
    held.receive(one, b"ab", 0.0)
    held.receive(one, b"c", 0.0)
    held.receive(other, b"x", 0.0)
    assert (one.waits, list(one.questions), one.learnt) == (True, ["a"], [])
    other.questions["x"].end(False)
    held.receive(other, b"", 0.0)
    assert (other.learnt, other.waits, held.stands(other)) == ([("x", False)], False, False)
    for letter in "abc":
        one.questions[letter].end(True)
        held.receive(one, b"", 0.0)
    assert one.learnt == [("a", True), ("b", True), ("c", True)]
    assert not held.stands(one)


def test_what_stands_still_does_not_go_on_once_its_connection_ends():
    held = HeldInput(ClientBench().broker)
    front = Front(held)
    held.receive(front, b"ab", 0.0)
    held.abandon(front)
    front.questions["a"].end(True)
    assert (front.learnt, front.waits, held.stands(front)) == ([], False, False)
    held.abandon(front)


def test_a_mistake_after_the_answer_is_that_of_the_connection():
    held = HeldInput(ClientBench().broker)

    class Faulty(Front):
        def receive(self, data: bytes, now: float) -> None:
            super().receive(data, now)
            raise ZeroDivisionError

    front = Faulty(held)
    held.receive(front, b"a", 0.0)
    front.questions["a"].end(True)
    with pytest.raises(ZeroDivisionError):
        held.receive(front, b"", 0.0)
    assert not held.stands(front)


def test_audited_is_who_asked_and_not_who_came_meanwhile():
    broker = ClientBench().broker
    held = HeldInput(broker)
    actors: list[str] = []

    class Acting(Front):
        def receive(self, data: bytes, now: float) -> None:
            broker.events.actor = "shop"
            super().receive(data, now)
            actors.append(broker.events.actor)

    front = Acting(held)
    held.receive(front, b"a", 0.0)
    broker.events.actor = "another"
    front.questions["a"].end(True)
    held.receive(front, b"", 0.0)
    assert actors[0] == "shop"


@pytest.mark.parametrize(
    ("paths", "where"),
    [
        ("vhost", "resource_path"),
        ("resource", "vhost_path"),
        ("topic", "resource_path"),
    ],
)
def test_the_paths_belong_together(paths: str, where: str):
    given = f'[auth_http]\nuser_path = "https://a/u"\n{paths}_path = "https://a/p"\n'
    with pytest.raises(ConfigError) as refused:
        parse(given)
    assert [each.where for each in refused.value.problems] == [f"auth_http.{where}"]
