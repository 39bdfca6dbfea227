"""Messages that wait for a time, over HTTP: they are shown, dropped, and delivered before their time."""

from __future__ import annotations

import pytest

from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.http.management import delayed
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import waiting

from .lobby import Lobby

Q = "/api/queues/%2F/q"
D = "/api/leveret/queues/%2F/q/delayed"


def queue_with(lobby: Lobby, *delays_s: float, name: str = "q") -> WorkQueue:
    """A queue in which messages wait that are named by their delays."""
    lobby.ask("PUT", f"/api/queues/%2F/{name}")
    queue = lobby.queue(name)
    assert isinstance(queue, WorkQueue)
    for delay_s in delays_s:
        due_ms = int((lobby.clock.wall() + delay_s) * 1000)
        queue.push(Message(ENCODING, "", "q", b"", b"%g" % delay_s, Facts(ttl_ms=60_000, due_ms=due_ms)))
    return queue


def test_messages_that_wait_are_shown_in_the_order_in_which_they_are_due(lobby: Lobby) -> None:
    queue_with(lobby, 30, 10, 20)
    now_ms = round(lobby.clock.wall() * 1000)
    found = lobby.get(f"{D}?count=2")
    assert found["total"] == 3
    assert found["messages"] == [
        {
            "position": position,
            "due": now_ms + due_ms,
            "expires": now_ms + 60_000,
            "payload_bytes": 2,
            "delivery_count": 0,
            "redelivered": False,
        }
        for position, due_ms in ((1, 10_000), (2, 20_000))
    ]
    shown = lobby.get(Q)
    assert [shown[name] for name in ("messages", "messages_ready", "messages_delayed")] == [3, 0, 3]
    assert (shown["message_bytes_delayed"], shown["next_delayed_at"]) == (6, now_ms + 10_000)


def test_a_queue_in_which_nothing_waits_says_so(lobby: Lobby) -> None:
    lobby.queue_with(1)
    assert lobby.get(D) == {"total": 0, "messages": []}
    assert (lobby.get(Q)["messages_delayed"], lobby.get(Q)["next_delayed_at"]) == (0, None)
    assert lobby.ask("DELETE", D).json == {"dropped": 0}
    assert lobby.ask("POST", f"{D}/deliver", {}).json == {"delivered": 0}


def test_one_or_all_are_dropped(lobby: Lobby) -> None:
    queue = queue_with(lobby, 10, 20, 30)
    assert lobby.ask("DELETE", f"{D}/1").json == {"dropped": 1}
    assert [row["position"] for row in lobby.get(D)["messages"]] == [0, 2]
    for wrong in ("1", "7", "x", "-1", "9" * 30):
        assert lobby.ask("DELETE", f"{D}/{wrong}").status == 404
    assert lobby.ask("DELETE", D).json == {"dropped": 2}
    assert (queue.delayed, queue.ready) == (0, 0)


def test_some_or_all_are_delivered_before_their_time(lobby: Lobby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "PORTION", 2)
    queue = queue_with(lobby, 10, 20, 30, 40, 50, 60)
    assert lobby.ask("POST", f"{D}/deliver", {"positions": [1, 7]}).json == {"delivered": 1}
    lobby.advance(0)
    assert waiting(queue) == "20"
    assert lobby.ask("POST", f"{D}/deliver", {}).json == {"delivered": 5}
    lobby.advance(0)
    assert (waiting(queue), queue.delayed) == ("10 20 30 40 50 60", 0)


@pytest.mark.parametrize("positions", ["all", [1, "2"], [-1], [True], [1.5], {"1": 2}])
def test_positions_are_numbers(lobby: Lobby, positions: object) -> None:
    queue = queue_with(lobby, 10)
    assert lobby.ask("POST", f"{D}/deliver", {"positions": positions}).status == 400
    assert queue.delayed == 1


def test_who_may_read_a_queue_may_do_this_and_nobody_else(lobby: Lobby) -> None:
    mine, yours = queue_with(lobby, 10, name="mine"), queue_with(lobby, 10, name="yours")
    for name, status in (("mine", 200), ("yours", 403)):
        path = f"/api/leveret/queues/%2F/{name}/delayed"
        assert lobby.ask("GET", path, user="clerk").status == status
        assert lobby.ask("POST", f"{path}/deliver", {"positions": []}, user="clerk").status == status
        assert lobby.ask("DELETE", path, user="clerk").status == status
    assert (mine.delayed, yours.delayed) == (0, 1)
    assert lobby.ask("GET", "/api/leveret/queues/%2F/nothing/delayed").status == 404
    assert lobby.ask("DELETE", "/api/leveret/queues/%2F/nothing/delayed").status == 404
