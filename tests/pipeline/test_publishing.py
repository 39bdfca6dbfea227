"""What is asked twice happens once; what the broker refuses is said in the user's words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.pipeline.errors import Missing, PipelineError, Refused, Unreachable
from leveret.pipeline.publisher import Published, Publisher, State, Taken
from leveret.pipeline.sink_options import read_sink_options
from tests.pipeline.bulk import block, message, serving
from tests.pipeline.staged import FakeExchanges, bodies
from tests.pipeline.test_client import UNUSED, Time


@pytest.fixture
def broker() -> Iterator[FakeExchanges]:
    with serving(FakeExchanges()) as broker:
        assert isinstance(broker, FakeExchanges)
        yield broker


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def publisher(broker: FakeExchanges, time: Time) -> Iterator[Publisher]:
    publisher = publisher_of(broker.url, time)
    yield publisher
    publisher.close()


def publisher_of(endpoints: str, time: Time, password: str = "guest", **given: str) -> Publisher:
    options = read_sink_options({"endpoints": endpoints, "exchange": "shop", **given})
    return Publisher(options, password, time.sleep, lambda: time.now)


def rows(*bodies: bytes, exchange: str = "shop", key: str = "k") -> bytes:
    return block(0, *(message(each, exchange, key) for each in bodies))


def test_what_is_staged_is_published_by_the_commit(broker: FakeExchanges, publisher: Publisher):
    assert publisher.state("q") is None
    assert publisher.stage("q", 7, 0, 5, 0, rows(b"a", b"b")) == Taken(2, repeated=False)
    assert publisher.stage("q", 7, 0, 5, 1, rows(b"c")) == Taken(3, repeated=False)
    assert publisher.stage("q", 7, 0, 6, 0, rows(b"of an attempt that failed")) == Taken(1, repeated=False)
    assert bodies(broker) == []
    assert publisher.commit("q", 7, [(0, 5, 3)]) == Published(3, 0)
    assert bodies(broker) == [b"a", b"b", b"c"]
    assert publisher.state("q") == State(7, 0)
    assert broker.connections == 2  # one to stage, one to commit


def test_names_are_part_of_the_path(broker: FakeExchanges, time: Time):
    publisher = publisher_of(broker.url, time, vhost="a/b", mandatory="false")
    publisher.state("x/ü")
    publisher.publish(rows(b"a"))
    publisher.close()
    assert broker.asked == ["/api/leveret/staging/a%2Fb/x%2F%C3%BC", "/api/leveret/publish/a%2Fb"]


@pytest.mark.parametrize("fault", [503, 429, "hang up", "cut"])
def test_an_answer_that_is_lost_doubles_nothing(
    broker: FakeExchanges, publisher: Publisher, fault: int | str
):
    broker.faults = [fault, fault]
    assert publisher.stage("q", 7, 0, 5, 0, rows(b"a", b"b")) == Taken(2, repeated=False)
    broker.faults = [fault]
    assert publisher.stage("q", 7, 0, 5, 1, rows(b"c")) == Taken(3, repeated=False)
    broker.faults = [fault, fault]
    assert publisher.commit("q", 7, [(0, 5, 3)]).unroutable == 0
    assert bodies(broker) == [b"a", b"b", b"c"]


def test_a_batch_that_was_committed_is_not_taken_again(broker: FakeExchanges, publisher: Publisher):
    publisher.stage("q", 7, 0, 5, 0, rows(b"a"))
    publisher.commit("q", 7, [(0, 5, 1)])
    assert publisher.stage("q", 7, 0, 9, 0, rows(b"a")) == Taken(0, repeated=True)
    assert publisher.commit("q", 7, []).repeated
    assert publisher.commit("q", 6, []).repeated
    assert bodies(broker) == [b"a"]


def test_what_the_broker_has_lost_is_said(broker: FakeExchanges, publisher: Publisher):
    with pytest.raises(Refused, match=r"does not have what was staged.*piece 0 is next"):
        publisher.stage("q", 7, 0, 5, 1, rows(b"a"))
    with pytest.raises(Refused, match=r"does not have what was staged.*a part is missing"):
        publisher.commit("q", 7, [(0, 5, 1)])
    with pytest.raises(Refused, match="does not have what was staged"):
        publisher.commit("unknown", 7, [(0, 5, 1)])
    assert bodies(broker) == []


def test_what_is_dropped_is_not_published(broker: FakeExchanges, publisher: Publisher):
    publisher.stage("q", 7, 0, 5, 0, rows(b"a"))
    publisher.stage("q", 8, 0, 5, 0, rows(b"b"))
    publisher.drop("q", 7)
    with pytest.raises(Refused):
        publisher.commit("q", 7, [(0, 5, 1)])
    publisher.commit("q", 8, [(0, 5, 1)])
    publisher.drop("q", 8)  # is committed, and stays
    publisher.forget("q")
    publisher.forget("q")
    publisher.drop("q", 9)
    assert (bodies(broker), broker.stagings) == ([b"b"], {})


def test_queues_that_are_full_are_waited_for_as_long_as_rows_find_room(
    broker: FakeExchanges, publisher: Publisher, time: Time
):
    broker.room = 1
    for at in range(40):
        publisher.stage("q", 7, 0, 5, at, rows(b"%d" % at))
    assert publisher.commit("q", 7, [(0, 5, 40)]).repeated
    assert bodies(broker) == [b"%d" % at for at in range(40)]
    assert time.now > 60  # the option retrySeconds


def test_queues_that_stay_full_end_it_and_nothing_is_lost(
    broker: FakeExchanges, publisher: Publisher, time: Time
):
    publisher.stage("q", 7, 0, 5, 0, rows(b"a"))
    broker.room = 0
    with pytest.raises(
        Unreachable,
        match=r"batch 7 is committed, but 1 rows have found no room .* 60 s \(option retrySeconds\)",
    ):
        publisher.commit("q", 7, [(0, 5, 1)])
    broker.room = 1
    assert publisher.commit("q", 7, []).repeated
    assert bodies(broker) == [b"a"]


def test_a_commit_that_was_not_taken_is_an_error(broker: FakeExchanges, publisher: Publisher):
    publisher.stage("q", 7, 0, 5, 0, rows(b"a"))
    broker.faults = [503] * 20
    with pytest.raises(Unreachable, match="503"):
        publisher.commit("q", 7, [(0, 5, 1)])


def test_at_least_once_is_published_at_once(broker: FakeExchanges, time: Time):
    publisher = publisher_of(broker.url, time, mandatory="false")
    assert publisher.publish(rows(b"a")) == Published(1, 0)
    assert publisher.publish(rows(b"b", key="nowhere")) == Published(0, 1)
    broker.faults = ["cut"]
    publisher.publish(rows(b"c"))
    publisher.close()
    assert bodies(broker) == [b"a", b"c", b"c"]


def test_a_missing_exchange_is_named(publisher: Publisher):
    said = "the target of the rows is not in virtual host '/': no exchange 'shp' in vhost '/'"
    with pytest.raises(Missing, match=said):
        publisher.stage("q", 7, 0, 5, 0, rows(b"a", exchange="shp"))
    with pytest.raises(Missing, match=said):
        publisher.publish(rows(b"a", exchange="shp"))


def test_a_row_for_no_queue_is_named_unless_it_may_be_dropped(
    broker: FakeExchanges, publisher: Publisher, time: Time
):
    strict, lax = publisher, publisher_of(broker.url, time, mandatory="false")
    assert lax.stage("q", 7, 0, 5, 0, rows(b"a", key="nowhere")).rows == 1
    for attempt in (
        lambda: strict.stage("q", 7, 0, 6, 0, rows(b"a", key="nowhere")),
        lambda: strict.publish(rows(b"a", key="nowhere")),
    ):
        with pytest.raises(
            Refused, match=r"into no queue: no queue for exchange 'shop' with key 'nowhere'; bind"
        ):
            attempt()
    lax.close()


def test_a_wrong_password_names_the_options_and_not_the_password(broker: FakeExchanges, time: Time):
    publisher = publisher_of(broker.url, time, "s3cret")
    with pytest.raises(Refused, match="does not let 'guest' in: see the options username") as caught:
        publisher.publish(rows(b"a"))
    publisher.close()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "user 'guest' may not publish that in virtual host '/': a fault"),
        (
            413,
            r"a row is larger than a message may be \(limits.message_size_max of the broker's .*\): a fault",
        ),
        (400, "answers 400: a fault"),
        (507, "answers 507: a fault"),
    ],
)
def test_a_refusal_says_why_and_is_not_repeated(
    broker: FakeExchanges, publisher: Publisher, status: int, said: str
):
    broker.faults = [status]
    with pytest.raises(Refused, match=said):
        publisher.stage("q", 7, 0, 5, 0, rows(b"a"))
    assert len(broker.asked) == 1


def test_a_broker_that_stays_away_is_given_up(time: Time):
    publisher = publisher_of(UNUSED, time)
    with pytest.raises(Unreachable, match="no broker answers"):
        publisher.commit("q", 7, [(0, 5, 1)])


@pytest.mark.parametrize("strange", [b"", b"[]", b"{}", b'{"rows":-1,"published":"x"}', b"\xff"])
def test_an_answer_that_makes_no_sense_is_no_crash(
    broker: FakeExchanges, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, strange: bytes
):
    monkeypatch.setattr(broker, "change", lambda method, target: (200, {"Content-Type": "x/y"}, strange))
    for ask in (
        lambda: publisher.stage("q", 7, 0, 5, 0, b""),
        lambda: publisher.commit("q", 7, []),
        lambda: publisher.state("q"),
    ):
        with pytest.raises(PipelineError, match="is there a broker with staged publishing"):
            ask()
