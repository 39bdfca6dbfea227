"""Serve only the metrics, on a listener of their own, to every client that reaches it, without a login.

Metrics reveal names, of virtual hosts and queues, and numbers. Therefore the listener is off, and on this machine only,
unless the configuration says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.protocols.http.connection import Later, Pause, Response
from leveret.protocols.http.metrics import ROUTES
from leveret.protocols.http.server.adapter import ControlAdapter, parameters, require_own_origin
from leveret.protocols.http.server.replies import json_response
from leveret.protocols.http.server.request import Request
from leveret.protocols.http.server.route_tree import RouteTree
from leveret.protocols.http.server.routes import find

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.config.config import Config
    from leveret.front_end import Peer
    from leveret.outbox import Outbox
    from leveret.protocols.http.connection import Allowance, HttpRequest

TREE: Final = RouteTree(ROUTES)


class MetricsAdapter(ControlAdapter):
    """The front-end of one connection that scrapes."""

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        super().__init__(broker, config, outbox, peer, now)
        self._own_name = config.prometheus.address.host

    def on_request(self, request: HttpRequest) -> Response | Later | Pause:
        return self._guarded(request.path, self._scraped, request)

    def allow(self, head: HttpRequest, size: int | None) -> Allowance | Response | None:
        return None

    def _scraped(self, request: HttpRequest) -> Response | Later:
        self._require_own_host(request)
        require_own_origin(request)
        route, arguments = find(request.method, request.path, TREE)
        self.is_stranger = False  # a scraper keeps its connection
        self.broker.events.actor = ""
        query = parameters(request.query)
        answer = route.answer(Request(self.broker, arguments, query, headers=request.headers))
        return answer if isinstance(answer, Later | Response) else json_response(answer)
