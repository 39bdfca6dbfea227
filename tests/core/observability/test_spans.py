"""Spans of OpenTelemetry: what a node adds to a trace that a publisher has begun."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leveret.delivery import UNLIMITED
from leveret.message import Encoding, Facts, Message
from leveret.observability.spans import ALIKE_MAX, SPANS, WAITING_MAX, Spans, is_sampled
from leveret.protocols.amqp010.broker.encoding import ENCODING as ENCODING_0_10
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING_0_9_1
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING_1_0
from leveret.values import Properties
from tests.core.fakes import FakeConsumer
from tests.harness.bench import CoreBench, message
from tests.harness.call_count import calls

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"


class Recorded(CoreBench):
    """A bench whose spans are kept in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.exporter = InMemorySpanExporter()
        self.spans = Spans(SimpleSpanProcessor(self.exporter), self.broker.clock)
        self.host.observe(SPANS, self.spans)

    def told(self) -> list[ReadableSpan]:
        """Return the spans since last time."""
        found: Sequence[ReadableSpan] = self.exporter.get_finished_spans()
        self.exporter.clear()
        return list(found)

    def send(self, parent: str | None = SAMPLED, key: str = "q", encoding: Encoding = ENCODING_0_9_1) -> None:
        self.broker.publish(self.host.default_exchange, traced(parent, key, encoding))
        self.settle()


def traced(parent: str | None, key: str = "q", encoding: Encoding = ENCODING_0_9_1) -> Message:
    headers = {"other": 1} if parent is None else {"traceparent": parent}
    octets = encoding.write(Properties(headers=headers))
    return Message(encoding, "", key, octets, encoding.body(b"body"), Facts(has_headers=True))


@pytest.fixture
def bench() -> Recorded:
    return Recorded()


@pytest.mark.parametrize("encoding", [ENCODING_0_9_1, ENCODING_1_0, ENCODING_0_10])
def test_the_way_of_a_message_becomes_spans_below_its_publisher(bench: Recorded, encoding: Encoding) -> None:
    queue = bench.queue()
    bench.send(encoding=encoding)
    bench.advance(2)
    FakeConsumer(queue, credit=UNLIMITED)
    bench.settle()
    published, waited = bench.told()
    for span in (published, waited):
        assert span.context is not None
        assert span.parent is not None
        assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert (published.name, waited.name) == ("publish", "queue q")
    assert published.attributes is not None
    assert published.attributes["leveret.queues"] == ("q",)
    assert waited.attributes is not None
    assert waited.attributes["messaging.destination.name"] == "q"
    assert waited.start_time == published.start_time
    assert waited.start_time is not None
    assert waited.end_time == waited.start_time + 2_000_000_000


@pytest.mark.parametrize(
    "parent",
    [None, f"00-{TRACE}-{SPAN}-00", "nonsense", f"00-{TRACE}-{SPAN}-zz", f"00-{'0' * 32}-{SPAN}-01", ""],
)
def test_a_message_without_a_recorded_trace_leaves_no_span(bench: Recorded, parent: str | None) -> None:
    FakeConsumer(bench.queue(), credit=UNLIMITED)
    bench.send(parent)
    assert bench.told() == []


def test_a_message_that_no_queue_gets_is_an_error_in_its_span(bench: Recorded) -> None:
    bench.send(key="nowhere")
    (span,) = bench.told()
    assert (span.status.is_ok, span.status.description) == (False, "no queue")


def test_the_delivery_of_a_dead_letter_has_a_span(bench: Recorded) -> None:
    bench.queue("dead")
    bench.queue("q", x_message_ttl=1000, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    bench.send()
    bench.advance(1)
    bench.advance(3)
    FakeConsumer(bench.host.queue("dead"), credit=UNLIMITED)
    bench.settle()
    published, waited = bench.told()
    assert (published.name, waited.name) == ("publish", "queue dead")
    assert waited.end_time == waited.start_time


def test_messages_of_one_span_are_told_apart_by_their_order(bench: Recorded) -> None:
    queue = bench.queue()
    for _ in range(2):
        bench.send()
        bench.advance(1)
    FakeConsumer(queue, credit=UNLIMITED)
    bench.settle()
    waits = [span for span in bench.told() if span.name == "queue q"]
    assert [(each.end_time or 0) - (each.start_time or 0) for each in waits] == [2_000_000_000, 1_000_000_000]


def test_what_is_remembered_of_waiting_messages_is_bounded(bench: Recorded) -> None:
    bench.queue()
    for _ in range(ALIKE_MAX + 1):
        bench.send()
    for number in range(WAITING_MAX + 1):
        bench.spans.published(traced(f"00-{number + 1:032x}-{SPAN}-01"), (bench.host.queue("q"),))
    assert len(bench.spans._arrived) == WAITING_MAX
    assert all(len(arrivals) <= ALIKE_MAX for arrivals in bench.spans._arrived.values())


def test_runs_stay_runs_up_to_a_message_of_a_trace(bench: Recorded) -> None:
    queue, exchange = bench.queue(), bench.host.default_exchange
    bench.send(None)
    run = [traced(None), traced(None), traced(SAMPLED), traced(None)]
    assert bench.broker.publish_run(exchange, run) == 2
    assert bench.broker.publish_run(exchange, run[2:]) == 0
    assert queue.ready == 3


def test_copies_and_spans_do_not_disturb_each_other(bench: Recorded) -> None:
    bench.broker.encodings = {"amqp091": lambda: ENCODING_0_9_1}
    copies = bench.host.declare_queue("copies")
    bench.host.bind(bench.host.exchange("amq.rabbitmq.trace"), copies, "publish.#")
    bench.queue()
    bench.host.set_tracing(True)
    bench.send()
    assert (copies.ready, [span.name for span in bench.told()]) == (1, ["publish"])
    bench.host.set_tracing(False)
    bench.send()
    assert (copies.ready, [span.name for span in bench.told()]) == (1, ["publish"])


def test_virtual_hosts_that_come_later_are_recorded_too(bench: Recorded) -> None:
    bench.broker.guests.put(bench.spans)
    late = bench.broker.add_virtual_host("late")
    late.declare_queue("q")
    bench.broker.publish(late.default_exchange, traced(SAMPLED))
    assert [span.name for span in bench.told()] == ["publish"]


def test_nobody_pays_for_spans_that_are_not_recorded(bench: Recorded) -> None:
    plain = CoreBench()
    bench.host.observe(SPANS, None)

    def counted(each: CoreBench) -> object:
        queue = each.host.queues.get("q") or each.queue("q")
        FakeConsumer(queue, credit=UNLIMITED)
        each.publish("q", b"warm")
        return calls(lambda: each.broker.publish(each.host.default_exchange, message("q")))

    assert counted(plain) == counted(bench)


def test_flags_are_read_as_bits() -> None:
    assert [is_sampled(f"00-{TRACE}-{SPAN}-{flags}") for flags in ("00", "01", "02", "03")] == [
        False,
        True,
        False,
        True,
    ]


def test_what_was_recorded_is_sent_before_the_node_ends(bench: Recorded) -> None:
    exporter = InMemorySpanExporter()
    spans = Spans(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000), bench.broker.clock)
    bench.host.observe(SPANS, spans)
    bench.send()
    spans.close()
    assert len(exporter.get_finished_spans()) >= 1
