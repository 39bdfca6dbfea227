"""Routes from an exchange that looks at headers: remembered by the headers that bindings name, whatever the others are.

The routes that are remembered must be those that would be found anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from leveret.exchanges import exchange_type
from leveret.exchanges.binding_selector import SELECTOR
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Exchange, LooksAt
from leveret.exchanges.headers import Headers
from leveret.exchanges.routing import HEADERS_MAX, ROUTES_MAX, walk
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, FieldValue
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Table
from tests.harness.bench import CoreBench
from tests.harness.call_count import calls
from tests.harness.plain import plain_only


class ByBody(Headers):
    """A type derived from `headers` that looks at more, and says nothing of it."""

    name = "x-by-body"

    def route(self, message: Message) -> Iterable[Destination]:
        return super().route(message) if message.body else ()


class Renamed(Headers):
    """A type derived from `headers` that routes as that does."""

    name = "x-renamed"


TYPES = {each.name: each for each in (Headers, ByBody, Renamed)}


def headed(headers: FieldTable, key: str = "", body: bytes = b"m") -> Message:
    properties = BasicProperties(headers=headers or None).encode()
    return Message(ENCODING, "x", key, properties, body, Facts(has_headers=bool(headers)))


class Desk:
    """An exchange of the type, and queues that are bound to it by their names' arguments."""

    def __init__(self, type_: str = "headers", **bound: Table) -> None:
        self.bench = CoreBench(types={**CoreBench().broker.exchange_types, **TYPES})
        self.exchange: Exchange = self.bench.host.declare_exchange("x", type_)
        for name, arguments in bound.items():
            self.bench.host.bind(self.exchange, self.bench.queue(name), "", arguments)

    def route(self, message: Message) -> list[str]:
        return sorted(queue.name for queue in self.bench.broker.route(self.exchange, message).queues)

    def publish(self, *messages: Message) -> None:
        for message in messages:
            self.bench.broker.publish(self.exchange, message)

    @property
    def remembered(self) -> int:
        return len(self.exchange.routes_by_headers)


values: st.SearchStrategy[FieldValue] = (
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["x", "y", b"x", 1.0, ["x"], {"a": 1}])
)
names = st.sampled_from(["a", "b", "c", "x-d", "é"])
tables = st.dictionaries(names, values, max_size=4)
modes = st.sampled_from([{}, *({"x-match": mode} for mode in ("all", "any", "all-with-x", "any-with-x"))])
bindings = st.builds(lambda mode, table: {**mode, **table}, modes, tables)


@given(st.lists(bindings, max_size=6), st.lists(st.tuples(tables, st.sampled_from(["", "k"])), max_size=12))
def test_a_remembered_route_is_the_one_that_would_be_found(
    bound: list[Table], sent: Sequence[tuple[FieldTable, str]]
) -> None:
    desk = Desk()
    host = desk.bench.host
    beside = host.declare_exchange("y", "direct")
    host.bind(desk.exchange, beside, "", {})
    host.bind(beside, desk.bench.queue("beside"), "k")
    for number, arguments in enumerate(bound):
        host.bind(desk.exchange, desk.bench.queue(f"q{number}"), "", arguments)
    for _ in range(2):
        for headers, key in sent:
            message = headed(headers, key)
            found = sorted(queue.name for queue in walk(desk.exchange, message).queues)
            assert desk.route(message) == found
        if bound:  # and so it is after a change
            host.unbind(desk.exchange, host.queues["q0"], "", bound[0])
            host.bind(desk.exchange, host.queues["q0"], "", {"x-match": "any", "a": "x"})
            bound = []


@plain_only
def test_a_header_that_no_binding_names_costs_no_route() -> None:
    desk = Desk(eu={"region": "eu"}, us={"region": "us"})
    for region in ("eu", "us", "eu"):
        assert desk.route(headed({"trace": "first", "region": region})) == [region]
    cost = calls(
        lambda: desk.publish(*(headed({"trace": str(n), "region": "eu", "n": n}) for n in range(50)))
    )
    assert cost["Headers.route"] == cost["walk"] == 0
    assert (desk.remembered, desk.bench.host.queues["eu"].ready) == (2, 50)


def test_messages_without_headers_share_a_route_and_keys_have_their_own() -> None:
    desk = Desk(everything={}, some={"a": 1})
    assert desk.route(headed({})) == desk.route(headed({"b": 1})) == ["everything"]
    assert desk.remembered == 1
    assert desk.route(headed({}, "k")) == ["everything"]
    assert desk.remembered == 2


def test_a_void_header_is_there_and_an_absent_one_is_not() -> None:
    desk = Desk(q={"a": None})
    assert (desk.route(headed({"a": None})), desk.route(headed({})), desk.route(headed({"b": None}))) == (
        ["q"],
        [],
        [],
    )


def test_long_headers_are_looked_at_each_time() -> None:
    desk = Desk(q={"a": None, "b": "x" * HEADERS_MAX})
    for _ in range(2):
        assert desk.route(headed({"a": "", "b": "x" * HEADERS_MAX})) == ["q"]
        assert desk.route(headed({"a": [1] * HEADERS_MAX})) == []
    assert desk.remembered == 0


def test_messages_whose_encoding_cannot_tell_are_looked_at_each_time() -> None:
    desk = Desk(q={"a": 1})
    message = Message(
        FakeEncoding(Properties(headers={"a": 1})), "x", "", b"headers", b"", Facts(has_headers=True)
    )
    assert desk.route(message) == desk.route(message) == ["q"]
    assert desk.remembered == 0


def test_a_derived_type_that_routes_in_its_own_way_has_nothing_remembered() -> None:
    desk = Desk("x-by-body", q={"a": 1})
    assert (desk.route(headed({"a": 1})), desk.route(headed({"a": 1}, body=b""))) == (["q"], [])
    assert (desk.exchange.by_headers, desk.remembered, ByBody.looks_at) == (False, 0, LooksAt.HEADERS)
    assert Desk("x-renamed").exchange.by_headers


def test_a_new_version_of_the_type_is_looked_at_anew() -> None:
    desk = Desk("x-renamed", q={"a": 1})
    assert desk.route(headed({"a": 1}, body=b"")) == ["q"]
    desk.exchange.replace_type(ByBody)
    assert desk.route(headed({"a": 1}, body=b"")) == []
    desk.exchange.replace_type(Renamed)
    assert desk.route(headed({"a": 1}, body=b"")) == ["q"]


def test_a_headers_exchange_on_the_way_has_nothing_remembered() -> None:
    desk = Desk(q={"a": 1})
    host = desk.bench.host
    first, hop = host.declare_exchange("first", "headers"), host.declare_exchange("fan", "fanout")
    host.bind(first, desk.exchange, "", {"b": 1})
    host.bind(hop, desk.exchange, "")
    for source in (first, hop):
        for one in (1, 2):
            message = headed({"a": one, "b": 1})
            assert len(desk.bench.broker.route(source, message).queues) == (one == 1)
        assert not source.routes
        assert not source.routes_by_headers


def test_further_keys_and_selectors_are_looked_at_each_time() -> None:
    desk = Desk(q={"a": 1})
    host = desk.bench.host
    host.bind(desk.exchange, desk.bench.queue("chosen"), "", {"a": 1, SELECTOR: "n > 1"})
    assert [desk.route(headed({"a": 1, "n": n})) for n in (1, 2)] == [["q"], ["chosen", "q"]]
    assert desk.remembered == 0
    assert [desk.route(headed({"a": 2, "n": n})) for n in (1, 2)] == [[], []]
    assert desk.remembered == 1


def test_what_is_remembered_is_bounded_and_counted() -> None:
    desk = Desk(q={"a": None})
    assert desk.bench.host.routes_remembered == 0
    for number in range(5):
        desk.route(headed({"a": number}))
    assert desk.bench.host.routes_remembered == desk.remembered == 5
    desk.bench.host.routes_remembered += ROUTES_MAX
    desk.route(headed({"a": 5}))
    assert desk.remembered == 1
    desk.exchange.gone()
    assert desk.remembered == 0


def test_a_run_is_parted_by_headers() -> None:
    desk = Desk(eu={"region": "eu"}, us={"region": "us"}, both={"x-match": "any", "region": None})
    run = [
        headed({"region": region, "n": n}, body=b"%d" % n)
        for n, region in enumerate(["eu", "us", "eu", "eu"])
    ]
    desk.publish(run[0])
    assert desk.bench.broker.publish_run(desk.exchange, run) == 4
    queues = desk.bench.host.queues
    assert {name: queues[name].ready for name in ("eu", "us", "both")} == {"eu": 4, "us": 1, "both": 5}
    nowhere = [headed({"n": 1}), headed({"n": 2})]
    assert desk.bench.broker.publish_run(desk.exchange, nowhere) == 0
    assert (desk.exchange.published, desk.exchange.routed, desk.exchange.unroutable) == (5, 10, 0)


def test_the_first_class_that_says_counts() -> None:
    assert exchange_type.looks_at_headers(Headers)
    assert not exchange_type.looks_at_headers(ByBody)
