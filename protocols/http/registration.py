"""Register HTTP with a node: the first bytes of requests, and the factories of connections.

The front-end itself is imported with the first connection that speaks it, like AMQP 1.0: with
its routes it is a fifth of all that a node would otherwise load, and most nodes in tests never get an HTTP request.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from leveret.front_end import FrontEnd, Peer, Protocol

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.config.config import Config
    from leveret.outbox import Outbox


def control(broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> FrontEnd:
    """Return a front-end of the control endpoint for one connection."""
    from leveret.protocols.http.server.adapter import ControlAdapter

    return ControlAdapter(broker, config, outbox, peer, now)


def metrics(broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> FrontEnd:
    """Return a front-end for one connection to the listener that serves only the metrics."""
    from leveret.protocols.http.metrics.adapter import MetricsAdapter

    return MetricsAdapter(broker, config, outbox, peer, now)


PROTOCOL: Final = Protocol(
    name="http",
    first_bytes=(b"GET ", b"POST ", b"PUT ", b"DELETE ", b"HEAD ", b"OPTIONS", b"PATCH "),
    factory=control,
    shared=False,
    title="HTTP",
    prepare=partial(import_module, "leveret.protocols.http.server.adapter"),
)

PROMETHEUS: Final = Protocol(
    name="prometheus",
    first_bytes=(b"GET ", b"HEAD "),
    factory=metrics,
    shared=False,
    title="Prometheus metrics",
    prepare=partial(import_module, "leveret.protocols.http.metrics.adapter"),
)
