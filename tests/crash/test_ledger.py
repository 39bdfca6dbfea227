"""The books themselves: what they let pass, and what they complain of."""

from __future__ import annotations

import attrs
import pytest

from leveret.protocols.amqp091.codec.wire import BasicProperties

from .history import NOWHERE, THERE
from .ledger import Ledger, kinds
from .messages import Found, Message

A = [Message("a", number) for number in range(5)]


class Books(Ledger):
    """A ledger of some queues, and short ways to tell it things."""

    def __init__(self) -> None:
        super().__init__(
            ["q", "r", "dead", "short", "over", "counted", "log"],
            dead_letters={"q": "dead", "short": "over"},
            spilling={"short"},
            counting={"counted"},
            shuffled={"dead"},
            streams={"log"},
        )

    def publishes(self, message: Message, *queues: str, line: str = "a", confirmed: bool = True) -> None:
        self.published(message, queues, deed := self.deed(line, f"publish of {message.name}"))
        if confirmed:
            self.safe(deed)

    def reads(self, queue: str, message: Message, redelivered: bool = False):
        """A consumer gets it."""
        copy = self.delivered(found(queue, message, redelivered), "consumer")
        assert copy is not None
        return copy

    def after_a_kill(self, *waiting: Found, things: tuple[tuple[str, str], ...] = ()) -> list[str]:
        """The kinds of complaints if this is what is found."""
        self.restarted()
        contents: dict[str, list[Found]] = {queue: [] for queue in self.queues}
        for each in waiting:
            contents[each.queue].append(each)
        self.compare(contents, things)
        return list(kinds(self.complaints))


def found(queue: str, message: Message, redelivered: bool = True, **headers: object) -> Found:
    properties = message.properties
    properties.headers = {**(properties.headers or {}), **headers}  # type: ignore[dict-item]
    return Found(queue, message.body, properties, redelivered)


def dead(queue: str, message: Message, home: str, reason: str) -> Found:
    return found(queue, message, **{"x-death": [{"queue": home, "reason": reason, "count": 1}]})


@pytest.fixture
def books() -> Books:
    return Books()


def test_what_was_confirmed_must_be_there(books: Books):
    books.publishes(A[0], "q")
    books.publishes(A[1], "q")
    assert books.after_a_kill(found("q", A[0])) == ["LOST"]


def test_what_was_not_confirmed_may_be_there_or_not(books: Books):
    books.publishes(A[0], "q", confirmed=False)
    books.publishes(A[1], "r", line="b", confirmed=False)
    assert books.after_a_kill(found("r", A[1])) == []


def test_what_turned_out_to_be_there_stays_there(books: Books):
    books.publishes(A[0], "q", confirmed=False)
    assert books.after_a_kill(found("q", A[0])) == []
    assert books.after_a_kill() == ["LOST"]


def test_what_turned_out_to_be_gone_does_not_come_back(books: Books):
    books.publishes(A[0], "q", confirmed=False)
    assert books.after_a_kill() == []
    assert books.after_a_kill(found("q", A[0])) == ["BACK"]


def test_an_ack_may_be_forgotten_until_something_after_it_is_safe(books: Books):
    for message in A[:2]:
        books.publishes(message, "q", line="b")
        books.settled(books.reads("q", message), books.deed("a", "ack", implied=True))
    assert books.after_a_kill(found("q", A[1])) == []

    books.settled(books.reads("q", A[1], True), books.deed("a", "ack", implied=True))
    books.publishes(A[2], "r")
    assert books.after_a_kill(found("q", A[1]), found("r", A[2])) == ["BACK"]


def test_a_message_published_earlier_on_the_connection_needs_its_own_confirm(books: Books):
    books.publishes(A[0], "q", confirmed=False)
    books.publishes(A[1], "q")
    assert books.after_a_kill(found("q", A[1])) == ["ORDER"]
    assert "LOST" not in kinds(books.complaints)


def test_a_fan_out_is_whole(books: Books):
    books.publishes(A[0], "q", "r", confirmed=False)
    assert books.after_a_kill(found("r", A[0])) == ["HALF"]


def test_a_transaction_is_whole(books: Books):
    books.publishes(A[0], "q")
    copy = books.reads("q", A[0])
    commit = books.deed("b", "commit")
    books.published(A[1], ["r"], commit)
    books.settled(copy, commit)
    assert books.after_a_kill(found("q", A[0]), found("r", A[1])) == ["HALF"]


def test_what_was_rolled_back_was_never_there(books: Books):
    books.prepared(A[0])
    assert books.after_a_kill(found("q", A[0])) == ["UNKNOWN"]


def test_what_happened_on_a_connection_is_not_missing_what_was_before_it(books: Books):
    books.publishes(A[0], "q", confirmed=False)
    books.publishes(A[1], "r", line="b", confirmed=False)
    books.publishes(A[2], "q", confirmed=False)
    assert books.after_a_kill(found("q", A[2])) == ["ORDER"]


def test_a_copy_is_found_once(books: Books):
    books.publishes(A[0], "q")
    assert books.after_a_kill(found("q", A[0]), found("q", A[0])) == ["ORDER", "TWICE"]


def test_every_octet_counts(books: Books):
    books.publishes(A[0], "q")
    body = bytearray(A[0].body)
    body[-1] ^= 1
    assert books.after_a_kill(attrs.evolve(found("q", A[0]), body=bytes(body))) == ["BYTES", "LOST"]


@pytest.mark.parametrize("changed", ["delivery_mode", "priority", "expiration", "message_id", "headers"])
def test_every_property_counts(books: Books, changed: str):
    books.publishes(A[0], "q")
    properties: BasicProperties = A[0].properties
    setattr(properties, changed, {"number": 7} if changed == "headers" else 1)
    assert books.after_a_kill(Found("q", A[0].body, properties, True)) == ["BYTES", "LOST"]


def test_order_of_a_publisher_is_kept(books: Books):
    books.publishes(A[0], "q")
    books.publishes(A[1], "q")
    assert books.after_a_kill(found("q", A[1]), found("q", A[0])) == ["ORDER"]


def test_first_deliveries_come_in_order(books: Books):
    books.publishes(A[0], "q")
    books.publishes(A[1], "q")
    books.reads("q", A[1])
    books.reads("q", A[0])
    assert list(kinds(books.complaints)) == ["ORDER"]


def test_what_was_read_before_says_so(books: Books):
    books.publishes(A[0], "q")
    books.publishes(A[1], "q")
    books.reads("q", A[0])
    assert books.after_a_kill(found("q", A[0], redelivered=False), found("q", A[1], False)) == ["FLAG"]


def test_what_comes_back_while_the_node_runs_says_so(books: Books):
    books.publishes(A[0], "q")
    books.left([books.reads("q", A[0])], books.deed("a", "requeue"))
    books.reads("q", A[0])
    assert list(kinds(books.complaints)) == ["FLAG", "ORDER"]


def test_nobody_gets_what_another_has(books: Books):
    books.publishes(A[0], "q")
    books.reads("q", A[0])
    books.reads("q", A[0], True)
    assert list(kinds(books.complaints)) == ["TWICE"]


def test_nobody_gets_what_was_acked(books: Books):
    books.publishes(A[0], "q")
    books.settled(books.reads("q", A[0]), books.deed("a", "ack", implied=True))
    books.reads("q", A[0], True)
    assert list(kinds(books.complaints)) == ["BACK"]


@pytest.mark.parametrize(
    ("queue", "count", "complaints"),
    [
        ("counted", 0, ["COUNT"]),
        ("counted", 1, []),
        ("counted", 2, []),
        ("counted", 3, ["COUNT"]),
        ("q", 3, []),
    ],
)
def test_safe_failures_are_counted_and_others_may_be(
    books: Books, queue: str, count: int, complaints: list[str]
):
    books.publishes(A[0], queue)
    for redelivered in (False, True):
        books.publishes(A[2 + redelivered], "r", line="b")
        copy = books.delivered(found(queue, A[0], redelivered, **{"x-delivery-count": int(redelivered)}), "c")
        assert copy is not None
        books.left([copy], books.deed("b", "requeue", implied=True))
    waiting = found("r", A[2]), found("r", A[3])
    assert books.after_a_kill(found(queue, A[0], **{"x-delivery-count": count}), *waiting) == complaints


@pytest.mark.parametrize("is_safe", [True, False])
def test_a_rejected_message_is_in_one_of_two_places(books: Books, is_safe: bool):
    books.publishes(A[0], "q")
    books.died(books.reads("q", A[0]), "q", books.deed("a", "reject", implied=True))
    if is_safe:
        books.publishes(A[1], "r")
        assert books.after_a_kill(found("q", A[0]), found("r", A[1])) == ["BACK"]
    else:
        assert books.after_a_kill() == ["LOST"]


def test_a_dead_letter_is_not_in_both_places(books: Books):
    books.publishes(A[0], "q")
    books.died(books.reads("q", A[0]), "q", books.deed("a", "reject", implied=True))
    assert books.after_a_kill(found("q", A[0]), dead("dead", A[0], "q", "rejected")) == ["TWICE"]


@pytest.mark.parametrize("place", ["short", "over"])
def test_the_oldest_of_a_short_queue_may_have_gone_by_themselves(books: Books, place: str):
    books.publishes(A[0], "short")
    at = dead("over", A[0], "short", "maxlen") if place == "over" else found("short", A[0])
    assert books.after_a_kill(at) == []


@pytest.mark.parametrize(
    ("home", "reason", "complaints"),
    [("short", "maxlen", []), ("short", "rejected", ["DEATH"]), ("q", "maxlen", ["DEATH"])],
)
def test_the_history_of_a_death_is_kept(books: Books, home: str, reason: str, complaints: list[str]):
    books.publishes(A[0], "short")
    assert books.after_a_kill(dead("over", A[0], home, reason)) == complaints


def test_who_has_not_died_has_no_history_of_it(books: Books):
    books.publishes(A[0], "q")
    assert books.after_a_kill(dead("q", A[0], "q", "rejected")) == ["DEATH"]


def test_a_message_that_is_not_persistent_does_not_outlive_the_node(books: Books):
    fleeting = Message("a", 9, persistent=False)
    books.publishes(fleeting, "q")
    assert books.after_a_kill() == []
    assert books.after_a_kill(found("q", fleeting)) == ["BACK"]


def test_a_purge_takes_what_was_confirmed_and_perhaps_what_was_on_its_way(books: Books):
    books.publishes(A[0], "r")
    books.publishes(A[1], "r", line="b", confirmed=False)
    books.purging("r", books.deed("c", "purge", implied=True))
    books.publishes(A[2], "r", line="d")
    books.purged("r")
    books.publishes(A[3], "r", line="d")
    books.publishes(A[4], "q", line="c")
    assert books.after_a_kill(found("q", A[4]), found("r", A[3])) == []


def test_a_safe_purge_is_not_forgotten(books: Books):
    books.publishes(A[0], "r")
    books.purging("r", books.deed("c", "purge", implied=True))
    books.purged("r")
    books.publishes(A[1], "q", line="c")
    assert books.after_a_kill(found("r", A[0]), found("q", A[1])) == ["BACK"]


def test_a_purge_takes_nothing_that_is_published_after_its_answer(books: Books):
    books.purging("r", books.deed("c", "purge", implied=True))
    books.purged("r")
    books.publishes(A[0], "r", line="d")
    assert books.after_a_kill() == ["LOST"]


@pytest.mark.parametrize(
    ("steps", "there", "complaints"),
    [
        ([(THERE, True)], True, []),
        ([(THERE, True)], False, ["LOST"]),
        ([(THERE, False)], True, []),
        ([(THERE, False)], False, []),
        ([(THERE, True), (NOWHERE, False)], True, []),
        ([(THERE, True), (NOWHERE, True)], True, ["BACK"]),
        ([(THERE, True), (NOWHERE, True)], False, []),
    ],
)
def test_declared_things_are_there_and_deleted_ones_are_gone(
    books: Books, steps: list[tuple[str, bool]], there: bool, complaints: list[str]
):
    thing = books.thing("queue", "t")
    for place, answered in steps:
        thing.goes(place, deed := books.deed("a", "declare or delete"))
        if answered:
            books.safe(deed)
    assert books.after_a_kill(things=(("queue", "t"),) if there else ()) == complaints


def test_a_failure_of_the_node_that_was_asked_to_end_may_count(books: Books):
    books.publishes(A[0], "counted")
    books.reads("counted", A[0])
    books.restarted(closed=True)
    assert books.after_a_kill(found("counted", A[0], **{"x-delivery-count": 1})) == []


def test_what_is_in_a_stream_stays_and_is_read_by_many(books: Books):
    books.publishes(A[0], "log")
    for reader in "ab":
        books.delivered(found("log", A[0], False, **{"x-stream-offset": 7}), reader)
    assert books.after_a_kill(found("log", A[0], False, **{"x-stream-offset": 7})) == []
    assert books.after_a_kill() == ["LOST"]


def test_an_offset_is_never_another_messages(books: Books):
    books.publishes(A[0], "log", confirmed=False)
    books.delivered(found("log", A[0], False, **{"x-stream-offset": 7}), "a")
    assert books.after_a_kill() == []
    books.publishes(A[1], "log")
    assert books.after_a_kill(found("log", A[1], False, **{"x-stream-offset": 7})) == ["OFFSET"]


def test_nothing_of_what_was_refused_may_be_there(books: Books):
    books.publishes(A[0], "q")
    held = books.reads("q", A[0])
    commit = books.deed("a", "commit")
    books.published(A[1], ["r"], commit)
    books.settled(held, commit)
    books.refused(commit)
    books.reads("q", A[0], redelivered=True)
    assert books.complaints == []
    assert books.after_a_kill(found("r", A[1])) == ["LOST", "MISPLACED"]
