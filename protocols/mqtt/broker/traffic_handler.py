"""The handler of the messages and acknowledgements of an MQTT client.

    Connection ──PUBLISH──> TrafficHandler ──> Publishing ──> broker_core
                                 └──PUBACK, PUBREC──> Answers
    Connection ──PUBACK, PUBREC, PUBREL, PUBCOMP──> TrafficHandler ──> Session

It is the hot path, and apart from the adapter so that it can be compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker import WORK_MAX, Broker
from leveret.errors import Failure
from leveret.protocols.mqtt.broker.answers import Answers
from leveret.protocols.mqtt.broker.errors import error_of
from leveret.protocols.mqtt.broker.publishing import Publishing
from leveret.protocols.mqtt.broker.session import Session
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.packets import MQTT_5, MQTT_311, Ack
from leveret.protocols.mqtt.codec.properties import PUBACK, PUBCOMP, PUBREC, PUBREL, Properties
from leveret.protocols.mqtt.codec.reader import PublishRun
from leveret.protocols.mqtt.codec.writer import ack
from leveret.protocols.mqtt.machine.connection import Connection
from leveret.protocols.mqtt.machine.traffic import Traffic

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.protocols.mqtt.broker.settings import MqttSettings


class TrafficHandler(Traffic):
    """The messages and acknowledgements of one connection while it serves its session."""

    __slots__ = (
        "_answers",
        "_body_size_max",
        "_broker",
        "_client",
        "_publishing",
        "_session",
        "_settings",
        "_wire",
        "confirmed",
    )

    def __init__(
        self,
        client: Client,
        session: Session,
        settings: MqttSettings,
        body_size_max: int,
        answers: Answers,
        wire: Connection,
    ) -> None:
        self._client = client
        self._broker: Broker = client.broker
        self._session = session
        self._settings = settings
        self._body_size_max = body_size_max
        self._publishing: Publishing | None = None  # until the client has published
        self._answers = answers
        self._wire = wire
        self.confirmed = 0  # messages of QoS 1 and 2 that were accepted

    def on_publish(self, run: PublishRun) -> int:
        qos = run.qos
        if not qos:
            return self._publish_unanswered(run)
        session = self._session
        for at, payload in enumerate(run.payloads):
            if at and self._broker.work > WORK_MAX:
                return at
            packet_id = run.packet_ids[at]
            if qos == 2 and packet_id in session.received:
                self._answers.add(ack(PUBREC << 4, packet_id), session.record is not None)
                self._wire.answered()
                continue
            code = self._published(run.topics[at], payload, qos, run.retain, run.properties[at])
            self._acknowledge(qos, packet_id, code)
        return len(run.payloads)

    def _open_publishing(self) -> Publishing:
        client_id, size_max = self._session.client_id, self._body_size_max
        self._publishing = Publishing(self._client, client_id, self._settings, size_max)
        return self._publishing

    def _publish_unanswered(self, run: PublishRun) -> int:
        """Publish messages of QoS 0, and return how many. Raises MqttError for one that may not be published."""
        publishing = self._publishing
        if publishing is None:
            publishing = self._open_publishing()
        try:
            if run.is_alike and not run.retain:
                return publishing.publish_alike(run.topics[0], run.payloads, run.properties[0])
            for at, payload in enumerate(run.payloads):
                if at and self._broker.work > WORK_MAX:
                    return at
                try:
                    publishing.publish(run.topics[at], payload, 0, run.retain, run.properties[at])
                except MqttError as error:
                    if error.reason_code != r.QUOTA_EXCEEDED:
                        raise  # a full queue drops what need not arrive
        except Failure as failure:
            raise error_of(failure) from None
        return len(run.payloads)

    def _published(self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties) -> int:
        """Publish a message with QoS 1 or 2, and return the reason code for its acknowledgement.

        Raises MqttError if the client's version has no such code.
        """
        try:
            publishing = self._publishing
            if publishing is None:
                publishing = self._open_publishing()
            return publishing.publish(topic, payload, qos, retain, properties)
        except Failure as failure:
            error = error_of(failure)
        except MqttError as refused:
            error = refused
        if self._wire.version == MQTT_311:
            raise error from None
        return error.reason_code if error.reason_code in r.OF_PUBACK else r.IMPLEMENTATION_SPECIFIC_ERROR

    def _acknowledge(self, qos: int, packet_id: int, code: int) -> None:
        kind = PUBACK if qos == 1 else PUBREC
        refused = code >= r.UNSPECIFIED_ERROR
        if qos == 2 and not refused:
            self._session.receive(packet_id)
        if qos == 1 or refused:
            self._wire.answered()
        if not refused:
            self.confirmed += 1
        if code and self._wire.version == MQTT_5:
            packet = Ack(kind, packet_id, code).encode(MQTT_5)
        else:
            packet = ack(kind << 4, packet_id)
        self._answers.add(packet, not refused)

    def on_ack(self, kind: int, packet_id: int, reason_code: int) -> None:
        session = self._session
        if kind != PUBREL:
            session.acknowledge(kind, packet_id, reason_code)
        elif session.complete(packet_id):
            self._wire.answered()
            self._answers.add(ack(PUBCOMP << 4, packet_id), session.record is not None)
        else:
            code = r.PACKET_IDENTIFIER_NOT_FOUND
            self._answers.add(Ack(PUBCOMP, packet_id, code).encode(self._wire.version), False)
