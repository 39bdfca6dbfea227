"""The metrics on a listener of their own: whoever reaches it may read them, without a name; nothing else is there.

What can be read tells names, of virtual hosts and queues, and numbers. Therefore it is off, and on this machine only,
unless the configuration says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocols.http.connection import Later, Pause, Response
from protocols.http.metrics import ROUTES
from protocols.http.server.adapter import ControlConnection, parameters, require_own_origin
from protocols.http.server.replies import json_response
from protocols.http.server.request import Asked
from protocols.http.server.router import Tree
from protocols.http.server.routes import find

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.config.load import Config
    from broker_core.frontend import Peer
    from broker_core.outbox import Outbox
    from protocols.http.connection import Allowance, Request

TREE: Final = Tree(ROUTES)


class MetricsConnection(ControlConnection):
    """One connection of somebody who scrapes."""

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        super().__init__(broker, config, outbox, peer, now)
        self._own_name = config.prometheus.address.host

    def on_request(self, request: Request) -> Response | Later | Pause:
        return self._guarded(request.path, self._scraped, request)

    def allow(self, head: Request, size: int | None) -> Allowance | Response | None:
        return None

    def _scraped(self, request: Request) -> Response | Later:
        self._require_own_host(request)
        require_own_origin(request)
        route, arguments = find(request.method, request.path, TREE)
        self.is_stranger = False  # who scrapes comes back on the same connection
        self.broker.events.actor = ""
        query = parameters(request.query)
        answer = route.answer(Asked(self.broker, arguments, query, headers=request.headers))
        return answer if isinstance(answer, Later | Response) else json_response(answer)
