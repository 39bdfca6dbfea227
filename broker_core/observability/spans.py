"""Spans of OpenTelemetry: the broker's part in a trace that the publisher of a message has begun.

    traceparent: 00-<trace>-<span of the publisher>-01
        ├─ publish EXCHANGE   when the message was routed, with the queues that it went to
        └─ queue QUEUE        from then until it was delivered, one for each queue and delivery; of a second delivery,
                              and of a dead letter, the moment of the delivery

The header `traceparent` (W3C Trace Context), in 1.0 an application property or annotation, says whether a trace is
recorded; messages without it, or with one that is not sampled, cost a search in their properties and nothing else.
Messages themselves are not changed. Spans are sent in batches by a thread of the SDK, which drops what it cannot send.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from leveret.arguments.checks import text
from leveret.guests import Guest
from leveret.observability.tracer import Traced
from leveret.queues.counted_queue import CountedQueue
from leveret.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.util.types import AttributeValue

    from leveret.clock import Clock
    from leveret.delivery import Delivery
    from leveret.message import Message
    from leveret.observability.connection_stats import ConsumerFacts
    from leveret.queues.contract import QueueHost
    from leveret.queues.queue import Queue

SPANS: Final = "spans"
PARENT: Final = "traceparent"
STATE: Final = "tracestate"
NAMED: Final = PARENT.encode()  # searched for in the encoded properties, before they are decoded
WAITING_MAX: Final = 10_000  # spans whose messages wait in a queue with a known time of arrival
ALIKE_MAX: Final = 100  # messages of one span in one queue
QUEUES_MAX: Final = 32  # names in the attribute of one span
TIMEOUT_S: Final = 3  # of one request to the collector
PROPAGATOR: Final = TraceContextTextMapPropagator()


class Spans(Guest):
    """Records spans. `record` gets each span when it ends; `clock` tells the time."""

    rank: ClassVar[int] = 95

    def __init__(self, record: SpanProcessor, clock: Clock, service: str = "leveret") -> None:
        resource = Resource.create({"service.name": service, "service.version": VERSION})
        # A message without a trace begins none: nobody would see the other half of it.
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_OFF), resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(record)
        self._tracer = self._provider.get_tracer("leveret", VERSION)
        self._clock = clock
        # When messages of a span came into a queue, in ns since 1970, by the two; the oldest are forgotten.
        self._arrived: OrderedDict[tuple[str, str, str], deque[int]] = OrderedDict()

    def virtual_host_added(self, host: QueueHost) -> None:
        """Record the spans of a new virtual host, too."""
        if isinstance(host, Traced):
            host.observe(SPANS, self)

    def close(self) -> None:
        """Send what was recorded. Takes as long as the collector needs, a few seconds at most."""
        self._provider.shutdown()

    def wants(self, message: Message) -> bool:
        """Return whether the message may belong to a trace."""
        return message.facts.has_headers and NAMED in message.properties

    def published(self, message: Message, queues: tuple[Queue, ...]) -> None:
        """Record that a message was routed to these queues."""
        if not self.wants(message) or (context := context_of(message)) is None:
            return
        now = self._now()
        for queue in queues:
            self._arrive(message, queue, now)
        attributes = self._attributes("publish", message, message.exchange)
        attributes["leveret.queues"] = [queue.name for queue in queues[:QUEUES_MAX]]
        span = self._tracer.start_span(
            f"publish {message.exchange}".rstrip(), context, SpanKind.INTERNAL, attributes, start_time=now
        )
        if not queues:
            span.set_status(Status(StatusCode.ERROR, "no queue"))
        span.end(now)

    def delivered(self, queue: CountedQueue, who: ConsumerFacts, deliveries: Iterable[Delivery]) -> None:
        """Record that a consumer has been given these."""
        for delivery in deliveries:
            message = delivery.message
            if not self.wants(message) or (context := context_of(message)) is None:
                continue
            now = self._now()
            attributes = self._attributes("deliver", message, queue.name)
            attributes["leveret.redelivered"] = bool(delivery.redelivered)
            attributes["leveret.connection"] = who.connection
            began = self._arrival(message, queue, now)
            span = self._tracer.start_span(
                f"queue {queue.name}", context, SpanKind.INTERNAL, attributes, start_time=began
            )
            span.end(now)

    def _arrive(self, message: Message, queue: CountedQueue, now: int) -> None:
        place = place_of(message, queue)
        if (arrivals := self._arrived.get(place)) is None:
            if len(self._arrived) >= WAITING_MAX:
                self._arrived.popitem(last=False)
            arrivals = self._arrived[place] = deque(maxlen=ALIKE_MAX)
        arrivals.append(now)

    def _arrival(self, message: Message, queue: CountedQueue, otherwise: int) -> int:
        """Return when a message came into a queue, if that is known still, and forget it."""
        place = place_of(message, queue)
        if (arrivals := self._arrived.get(place)) is None:
            return otherwise
        arrived = arrivals.popleft()
        if not arrivals:
            del self._arrived[place]
        return arrived

    def _now(self) -> int:
        return int(self._clock.wall() * 1e9)

    def _attributes(self, operation: str, message: Message, destination: str) -> dict[str, AttributeValue]:
        """Return the attributes of a span, by OpenTelemetry's conventions for messaging where they have a name."""
        return {
            "messaging.system": "leveret",
            "messaging.operation.name": operation,
            "messaging.destination.name": destination,
            "messaging.rabbitmq.destination.routing_key": message.key,
            "messaging.message.body.size": message.size,
            "network.protocol.name": message.encoding.name,
        }


def place_of(message: Message, queue: CountedQueue) -> tuple[str, str, str]:
    """Return a key for a message of a trace in a queue; it is the same after the message was read from disk again."""
    return queue.virtual_host.name, queue.name, text(message.header(PARENT)) or ""


def context_of(message: Message) -> Context | None:
    """Return the context that the headers of a message name; None if its trace is not recorded, or unreadable."""
    try:
        parent, state = text(message.header(PARENT)), text(message.header(STATE))
    except Exception:  # the encoding may raise anything
        return None
    if parent is None or not is_sampled(parent):
        return None
    return PROPAGATOR.extract({PARENT: parent, STATE: state or ""})


def is_sampled(parent: str) -> bool:
    """Return whether the flags at the end of a traceparent say that the trace is recorded."""
    try:
        return bool(int(parent.split("-")[3], 16) & 1)
    except (IndexError, ValueError):
        return False


def exporting(endpoint: str, service: str, clock: Clock) -> Spans:
    """Return a recorder that sends spans to a collector over OTLP/HTTP; `endpoint` is its URL for traces.

    The SDK's environment variables hold, too: OTEL_EXPORTER_OTLP_HEADERS and OTEL_BSP_*.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S)
    return Spans(BatchSpanProcessor(exporter), clock, service)
