"""The books of living rounds notice what is missing, twice, out of order, wrong, or wrongly flagged."""

from __future__ import annotations

import pytest

from tests.crash.messages import Message
from tests.living.books import Books, State


def message(number: int, priority: int | None = None) -> Message:
    return Message("p", number, 10, priority)


def books_with(*messages: Message, queue: str = "q", ranked: tuple[str, ...] = ()) -> Books:
    """Return books in which these are confirmed, and were published to the node that lives."""
    books = Books(ranked=ranked)
    books.survived()
    for each in messages:
        books.sent(each, [queue])
        books.confirmed(each, [queue])
    return books


def test_what_was_confirmed_and_does_not_come_is_lost() -> None:
    books = books_with(message(1), message(2), message(3))
    books.came("q", message(1).body, False)
    books.close("", {"q": 0})
    assert books.complaints == ["LOST: 2 messages of 'q': p/2 to p/3; the node says that 0 wait there"]


def test_what_was_not_confirmed_need_not_come() -> None:
    books = books_with()
    books.sent(message(1), ["q"])
    books.close("", {})
    assert books.complaints == []


def test_what_comes_once_more_without_having_been_given_back_is_noticed() -> None:
    books = books_with(message(1))
    for _ in range(2):
        books.came("q", message(1).body, True)
    assert [complaint.partition(":")[0] for complaint in books.complaints] == ["FLAG", "TWICE"]


@pytest.mark.parametrize("flagged", [True, False])
def test_what_was_given_back_has_to_come_again_and_to_say_so(flagged: bool) -> None:
    books = books_with(message(1))
    copy = books.came("q", message(1).body, False)
    assert copy is not None
    books.left([copy])
    assert books.missing() == [("q", "p/1")]
    books.came("q", message(1).body, flagged)
    assert books.missing() == []
    assert bool(books.complaints) is not flagged


def test_what_was_held_as_a_node_died_comes_again() -> None:
    books = Books()
    books.sent(message(1), ["q"])
    books.confirmed(message(1), ["q"])
    books.came("q", message(1).body, False)
    books.survived()
    assert books.missing() == [("q", "p/1")]
    books.came("q", message(1).body, True)
    assert books.complaints == []


def test_order_is_that_of_each_priority_where_there_are_priorities() -> None:
    for ranked, expected in ((("q",), []), ((), ["ORDER: p/1 of 'q' came after number 2"])):
        books = books_with(message(1), message(2, priority=5), ranked=ranked)
        books.came("q", message(2, priority=5).body, False)
        books.came("q", message(1).body, False)
        assert books.complaints == expected


def test_what_nobody_has_published_and_what_was_spoilt_are_noticed() -> None:
    books = books_with(message(1))
    assert books.came("q", b"p/7 ", False) is None
    assert books.came("q", b"p/1 spoilt", False) is None
    assert books.complaints == ["UNKNOWN: 'p/7' in 'q'", "BYTES: p/1 in 'q' is not what was published"]


def test_what_is_rejected_has_to_come_as_a_dead_letter() -> None:
    books = books_with(message(1))
    copy = books.came("q", message(1).body, False)
    assert copy is not None
    books.moved(copy, "dead")
    assert copy.state is State.SETTLED
    assert books.missing() == [("dead", "p/1")]


def test_what_a_node_says_of_damage_is_noticed() -> None:
    books = books_with()
    books.close("all is well\n3 messages of queue 'q' cannot be read\n", {})
    assert books.complaints == ["DAMAGE: 3 messages of queue 'q' cannot be read"]
