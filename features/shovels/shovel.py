"""One shovel: a transfer that its parameter describes, and that may end once it has moved so many messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.features.shovels.publish_properties import with_properties
from leveret.features.transfers.definition import AMQP10
from leveret.features.transfers.ends import DestinationEnd, Journey, SourceEnd, end_named
from leveret.features.transfers.local import LocalDestination, LocalSource
from leveret.features.transfers.transfer import Transfer
from leveret.message import Message
from leveret.values import Timestamp, Value

if TYPE_CHECKING:
    from leveret.config.amqp_uri import Uri

SHOVELLED: Final = "x-shovelled"
SHOVELLED_AT: Final = "x-shovelled-timestamp"


class Shovel(Transfer):
    """A shovel of a virtual host. `finished` is called once it has moved all that it was to move."""

    log: ClassVar[logging.Logger] = logging.getLogger("leveret.shovel")

    def __init__(self, journey: Journey, finished: Callable[[], None], is_static: bool = False) -> None:
        super().__init__(journey)
        self.type = "static" if is_static else "dynamic"
        self._finished = finished

    def _ends(self, source: Uri, destination: Uri) -> tuple[SourceEnd, DestinationEnd]:
        return self._source_at(source), self._destination_at(destination)

    def _source_at(self, uri: Uri) -> SourceEnd:
        if uri.is_local:
            return LocalSource(self.journey, uri, self)
        return self._remote_ends(self.definition.source.protocol).source(self.journey, uri, self)

    def _destination_at(self, uri: Uri) -> DestinationEnd:
        if uri.is_local:
            return LocalDestination(self.journey, uri, self)
        return self._remote_ends(self.definition.destination.protocol).destination(self.journey, uri, self)

    def _complete(self) -> None:
        self._finished()

    def _marked(self, message: Message) -> Message:
        """Return the message with the properties and headers that the definition asks for."""
        if self.definition.properties:
            message = with_properties(message, self.definition.properties)
        headers = (
            self._annotations() if self.definition.destination.protocol == AMQP10 else self._headers(message)
        )
        return message.saying(headers) if headers else message

    def _annotations(self) -> dict[str, Value]:
        """Return the annotations that RabbitMQ's shovels add to a message of AMQP 1.0."""
        annotations: dict[str, Value] = {}
        if self.definition.forward_headers:
            annotations["x-opt-shovelled-by"] = "leveret"
            annotations["x-opt-shovel-type"] = self.type
            annotations["x-opt-shovel-name"] = self.journey.name
        if self.definition.timestamp_header:
            annotations["x-opt-shovelled-timestamp"] = int(self._broker.clock.wall() * 1000)
        return annotations

    def _headers(self, message: Message) -> dict[str, Value]:
        headers: dict[str, Value] = {}
        if self.definition.forward_headers:
            before = message.header(SHOVELLED)
            headers[SHOVELLED] = [self._mark(), *(before if isinstance(before, list) else ())]
        if self.definition.timestamp_header:
            headers[SHOVELLED_AT] = Timestamp(int(self._broker.clock.wall()))
        return headers

    def _mark(self) -> Mapping[str, Value]:
        source, destination = self.definition.source, self.definition.destination
        mark: dict[str, Value] = {
            "shovelled-by": "leveret",
            "shovel-type": self.type,
            "shovel-name": self.journey.name,
            "shovel-vhost": self.journey.virtual_host,
            "src-uri": source.uris[0].shown,
            "dest-uri": destination.uris[0].shown,
        }
        for end, at in (("src", source), ("dest", destination)):
            for what, name in (("queue", at.queue), ("exchange", at.exchange), ("address", at.address)):
                if name is not None:
                    mark[f"{end}-{what}"] = name
        return mark

    @property
    def described(self) -> str:
        journey, definition = self.journey, self.definition
        ends = f"{end_named(definition.source)} to {end_named(definition.destination)}"
        return f"shovel '{journey.name}' in vhost '{journey.virtual_host}' ({ends})"
