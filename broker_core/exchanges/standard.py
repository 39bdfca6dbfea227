"""The four standard exchange types, by the names under which clients declare them."""

from __future__ import annotations

from typing import Final

from broker_core.exchanges.direct import Direct
from broker_core.exchanges.exchange import ExchangeType
from broker_core.exchanges.fanout import Fanout
from broker_core.exchanges.headers import Headers
from broker_core.exchanges.topic import Topic

STANDARD: Final[dict[str, type[ExchangeType]]] = {
    kind.name: kind for kind in (Direct, Fanout, Topic, Headers)
}
