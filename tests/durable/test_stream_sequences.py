"""Publishers who number their messages: what was taken is not taken again, whatever happens to the node."""

from __future__ import annotations

import pytest

from leveret.broker import Publisher
from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.queues.stream_log import PRODUCERS_MAX
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Value
from tests.core.fakes import waiting
from tests.core.queues.test_stream import stream
from tests.durable.test_holders import Site
from tests.harness.bench import CoreBench
from tests.harness.bench import message as plain_message
from tests.harness.call_count import calls

NUMBERED = Facts(durable=True, has_headers=True)


def numbered(body: bytes, producer: Value = "p", sequence: Value = 1, raw: bytes = b"x-producer") -> Message:
    """`raw` is what the properties look like to those who do not decode them."""
    encoding = FakeEncoding(Properties(headers={"x-producer": producer, "x-sequence": sequence}))
    return Message(encoding, "", "s", raw, body, NUMBERED)


class Confirmed(Publisher):
    """A publisher who counts what is confirmed."""

    def __init__(self) -> None:
        self.persistent = True
        self.published = self.confirmed = 0

    def mark(self) -> int:
        return self.published

    def taken(self, mark: int) -> None:
        self.confirmed = mark


def test_a_repetition_is_taken_and_dropped() -> None:
    queue = stream(CoreBench())
    for body, sequence in ((b"a", 1), (b"again", 1), (b"earlier", 0), (b"b", 2), (b"c", 9)):
        assert queue.push(numbered(body, sequence=sequence))
    assert (waiting(queue), queue.published, queue.ready) == ("a b c", 3, 3)


def test_producers_count_for_themselves_and_in_each_stream() -> None:
    bench = CoreBench()
    one, other = stream(bench, "one"), stream(bench, "other")
    for queue in (one, other):
        queue.push(numbered(b"a", "p"))
        queue.push(numbered(b"b", "q"))
    assert waiting(one) == waiting(other) == "a b"


def test_the_first_number_may_be_0() -> None:
    queue = stream(CoreBench())
    for body in (b"a", b"again"):
        queue.push(numbered(body, sequence=0))
    assert waiting(queue) == "a"


@pytest.mark.parametrize(
    ("producer", "sequence"),
    [
        ("p", None),
        (None, 1),
        ("", 1),
        ("p" * 256, 1),
        (7, 1),
        ("p", -1),
        ("p", True),
        ("p", "1"),
        ("p", 1 << 63),
    ],
)
def test_what_is_not_said_properly_is_not_counted(producer: Value, sequence: Value) -> None:
    queue = stream(CoreBench())
    for body in (b"a", b"b"):
        queue.push(numbered(body, producer, sequence))
    assert waiting(queue) == "a b"
    assert queue.log.sequences == {}


def test_the_longest_name_and_the_highest_number_count() -> None:
    queue = stream(CoreBench())
    for body in (b"a", b"again"):
        queue.push(numbered(body, "p" * 255, (1 << 63) - 1))
    assert waiting(queue) == "a"


def test_who_has_no_producer_in_his_octets_pays_for_no_decoding() -> None:
    queue = stream(CoreBench())
    assert "FakeEncoding.headers" not in calls(lambda: queue.push(numbered(b"a", raw=b"other headers")))
    assert "FakeEncoding.headers" in calls(lambda: queue.push(numbered(b"a")))


def test_the_producers_not_heard_of_for_longest_are_forgotten() -> None:
    queue = stream(CoreBench())
    for n in range(PRODUCERS_MAX):
        queue.push(numbered(b"a", str(n)))
    queue.push(numbered(b"again", "0"))  # a repetition counts as being heard of
    queue.push(numbered(b"one too many", "new"))
    assert (len(queue.log.sequences), queue.ready) == (PRODUCERS_MAX, PRODUCERS_MAX + 1)
    queue.push(numbered(b"again", "0"))
    assert queue.ready == PRODUCERS_MAX + 1
    queue.push(numbered(b"forgotten", "1"))
    assert queue.ready == PRODUCERS_MAX + 2


@pytest.mark.parametrize("crash", [False, True])
def test_numbers_survive_the_node(crash: bool) -> None:
    before = Site().start()
    before.stream.push(numbered(b"a", sequence=5))
    before.broker.settle()
    after = before.again(crash=crash)
    for body, sequence in ((b"again", 5), (b"b", 6)):
        after.stream.push(numbered(body, sequence=sequence))
    after.broker.settle()
    assert after.reads() == [(0, "a"), (1, "b")]


def test_a_number_is_on_disk_if_and_only_if_its_message_is() -> None:
    site = Site(MemoryStore(held=True)).start()
    site.land()
    site.stream.push(numbered(b"a"))
    site.broker.settle()
    crashed = site.again(crash=True)
    crashed.stream.push(numbered(b"a"))
    crashed.broker.settle()
    assert crashed.reads() == [(0, "a")]


def test_a_repetition_is_not_confirmed_before_the_message_is_on_disk() -> None:
    site = Site(MemoryStore(held=True)).start()
    site.land()
    site.stream.push(numbered(b"a"))
    site.broker.settle()  # in flight
    again = Confirmed()
    site.stream.push(numbered(b"a"))
    again.published = 1
    site.broker.publishers.append(again)
    site.broker.settle()
    assert again.confirmed == 0
    site.land()
    assert (again.confirmed, site.reads()) == (1, [(0, "a")])


def test_what_is_forgotten_and_what_goes_with_its_stream_leaves_the_store() -> None:
    site = Site().start()
    for n in range(PRODUCERS_MAX + 3):
        site.stream.push(numbered(b"a", str(n)))
    site.broker.settle()
    assert len(list(site.store.producers())) == PRODUCERS_MAX
    site.host.delete_queue(site.stream)
    site.broker.settle()
    assert list(site.store.producers()) == []


def test_a_push_to_a_log_on_disk_takes_two_calls_more_at_most() -> None:
    site, bench = Site().start(), CoreBench()
    in_memory = stream(bench)
    for queue in (site.stream, in_memory):
        queue.push(plain_message())  # the first of a commit enters its log
    on_disk = calls(lambda: site.stream.push(plain_message())).total()
    assert on_disk <= calls(lambda: in_memory.push(plain_message())).total() + 2
    assert on_disk <= 6  # with those that make the message
