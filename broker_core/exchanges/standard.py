"""The four standard exchange types, by the names under which clients declare them."""

from __future__ import annotations

from typing import Final

from leveret.exchanges.direct import Direct
from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.fanout import Fanout
from leveret.exchanges.headers import Headers
from leveret.exchanges.topic import Topic

STANDARD: Final[dict[str, type[ExchangeType]]] = {
    kind.name: kind for kind in (Direct, Fanout, Topic, Headers)
}
