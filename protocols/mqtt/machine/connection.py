"""The server's end of a connection, MQTT 3.1.1 and 5: what may come when, and the words for answers and refusals.

    CONNECT ─> STARTING ──────────────────────────────────────> OPEN ──DISCONNECT, an error, silence──> CLOSED
                  ├─> SECURING ─AUTH─> (a challenge, or in) ──────┤
                  └─> CHECKING, while a password is checked ──────┘

A client of version 5 is told why it is refused: in CONNACK before it is in, in DISCONNECT afterwards; one of 3.1.1 in
CONNACK only. The times of section 3.1.2.10 hold: after one and a half keep-alives without a packet the connection ends.
Topic aliases are resolved here, and the client's receive maximum and largest packet are kept by those that send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.errors import MqttError, ProtocolError
from leveret.protocols.mqtt.codec.packets import (
    MQTT_5,
    MQTT_311,
    Ack,
    AnyPacket,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Publish,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from leveret.protocols.mqtt.codec.properties import (
    AUTH,
    CONNECT,
    DISCONNECT,
    KIND_NAMES,
    NONE,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Properties,
)
from leveret.protocols.mqtt.codec.reader import AckRun, PublishRun, Reader
from leveret.protocols.mqtt.codec.values import encode_variable, variable_at
from leveret.protocols.mqtt.codec.writer import append_publish
from leveret.protocols.mqtt.machine.contract import Accepted, Answer, Challenge, Handler, Renewed, Terms
from leveret.protocols.mqtt.machine.traffic import Traffic
from leveret.protocols.shared.machine.connection_machine import ConnectionMachine
from leveret.protocols.shared.machine.contract import Wait, Writer
from leveret.protocols.shared.machine.states import CHECKING, CLOSED, OPEN, SECURING, STARTING, State

PINGRESP_OCTETS: Final = b"\xd0\0"
UNSUPPORTED_OCTETS: Final = b"\x20\x02\x00\x01"  # CONNACK of 3.1.1, for all versions but 3.1.1 and 5
SILENCE: Final = 1.5  # keep-alives (MQTT-3.1.2-22)
RECEIVE_MAXIMUM: Final = 0xFFFF  # of a client that says nothing
PACKET_SIZE_MAX: Final = 0x1000_0004
RETAIN: Final = 0x01
DUP: Final = 0x08
FIRST: Final = 0x30  # of a PUBLISH
REASON_MAX: Final = 1024  # bytes of a reason string

Packet = AnyPacket | PublishRun | AckRun


class Connection(ConnectionMachine):
    """One connection, from its first byte to its last. See the top of the module."""

    __slots__ = (
        "_aliases_in",
        "_aliases_out",
        "_aliases_out_max",
        "_client",
        "_handler",
        "_is_bridge",
        "_method",
        "_reader",
        "_renews",
        "_rest",
        "_tells_reasons",
        "_traffic",
        "in_flight_max",
        "keep_alive_s",
        "packet_size_max",
        "receiving",
        "terms",
        "version",
    )

    HEARTBEAT: ClassVar[bytes] = PINGRESP_OCTETS  # never sent by itself

    def __init__(self, handler: Handler, terms: Terms, outbox: Writer, now: float) -> None:
        super().__init__(STARTING, outbox, now, terms.connect_timeout_s)
        self._handler = handler
        self._traffic: Traffic | None = None  # until the first message or acknowledgement
        self.terms = terms
        self._reader = Reader(terms.connect_size_max, from_client=True)
        self.version = 0  # 4 or 5, once CONNECT has been read
        self._client: Connect | None = None  # what the client has said of itself, until it is in
        self._is_bridge = False
        self.keep_alive_s = 0
        self.packet_size_max = PACKET_SIZE_MAX  # of packets that are sent
        self.in_flight_max = 1  # messages of QoS 1 and 2 that may be on their way to the client
        self.receiving = 0  # messages of QoS 1 and 2 that have come, and are not answered
        self._method: str | None = None  # of an enhanced authentication
        self._renews = False  # it authenticates itself again
        self._rest: PublishRun | None = None  # messages that wait for the turns of others
        self._tells_reasons = True
        self._aliases_in: dict[int, str] | None = None  # None: there are none
        self._aliases_out: dict[bytes, int] | None = None
        self._aliases_out_max = 0

    # Input.

    def _take(self, data: bytes) -> None:
        self.halted = False
        reader = self._reader
        try:
            reader.push(data)
            while self.state is not CLOSED:
                if self.state is CHECKING:
                    return
                if self._rest is not None:
                    self._hand_on(self._rest)
                else:
                    packet = reader.take()
                    if packet is None:
                        return
                    self._on_packet(packet)
                if self._rest is None and not reader.waiting:
                    return
                if self._rest is not None or self.outbox.is_enough():
                    self.halted = True
                    return
        except MqttError as error:
            self.fail(error)

    def _check(self) -> None:
        try:
            self._proceed(self._handler.on_checked())
        except MqttError as error:
            self.fail(error)
        if self.state is not CHECKING:
            tail, self._tail, self._tail_size = b"".join(self._tail), [], 0
            self._take(tail)

    def _on_packet(self, packet: Packet) -> None:
        state, kind = self.state, packet.kind
        # the hash of a state is a call of plain Python, some 200 ns
        step = WHEN_OPEN.get(kind) if state is OPEN else NEXT.get((state, kind))
        if step is None:
            raise ProtocolError(f"a {KIND_NAMES[packet.kind]} in state '{self.state.value}'")
        step(self, packet)

    # Logging in.

    def _connect(self, packet: Packet) -> None:
        assert isinstance(packet, Connect)
        self.version = packet.version
        self.peer_spoke = "MQTT"
        asked = packet.properties
        self._method = asked.authentication_method
        self._tells_reasons = asked.request_problem_information != 0
        self.in_flight_max = min(asked.receive_maximum or RECEIVE_MAXIMUM, self.terms.in_flight_max)
        self.packet_size_max = asked.maximum_packet_size or PACKET_SIZE_MAX
        self._aliases_out_max = min(asked.topic_alias_maximum or 0, self.terms.topic_alias_max)
        self.keep_alive_s = packet.keep_alive
        longest = self.terms.keep_alive_max_s
        if self.version == MQTT_5 and longest and not 0 < packet.keep_alive <= longest:
            self.keep_alive_s = longest
        self._client = packet
        self._is_bridge = packet.is_bridge
        self._proceed(self._handler.on_connect(packet))

    def _auth(self, packet: Packet) -> None:
        """Take the client's answer to a challenge."""
        assert isinstance(packet, Auth)
        self._require_method(packet)
        if packet.reason_code != r.CONTINUE_AUTHENTICATION:
            raise ProtocolError(f"AUTH has reason code {packet.reason_code:#04x} during an authentication")
        self._proceed(self._handler.on_auth(packet.properties.authentication_data or b"", False))

    def _auth_again(self, packet: Packet) -> None:
        assert isinstance(packet, Auth)
        self._require_method(packet)
        begins = packet.reason_code == r.REAUTHENTICATE
        if begins is self._renews or packet.reason_code == r.SUCCESS:
            raise ProtocolError(f"AUTH has reason code {packet.reason_code:#04x}")
        self._renews = True
        self._proceed(self._handler.on_auth(packet.properties.authentication_data or b"", begins))

    def _require_method(self, packet: Auth) -> None:
        """Raise ProtocolError for a method that is not that of CONNECT (MQTT-4.12.0-5, MQTT-4.12.1-1)."""
        if self._method is None or packet.properties.authentication_method != self._method:
            raise ProtocolError("AUTH has not the authentication method of CONNECT")

    def _proceed(self, answer: Answer) -> None:
        if isinstance(answer, Wait):
            self.state = CHECKING
        elif isinstance(answer, Challenge):
            self.state = OPEN if self._renews else SECURING
            self._say_auth(r.CONTINUE_AUTHENTICATION, answer.octets)
        elif isinstance(answer, Renewed):
            self.state = OPEN
            self._renews = False
            self._say_auth(r.SUCCESS, answer.octets)
        else:
            self._open(answer)

    def _say_auth(self, code: int, octets: bytes) -> None:
        told = Properties(authentication_method=self._method, authentication_data=octets or None)
        self.outbox.write(Auth(code, told).encode(self.version))

    def _open(self, accepted: Accepted) -> None:
        client, self._client = self._client, None
        assert client is not None
        terms = self.terms
        self.heartbeat_s = self.keep_alive_s
        self._reader.packet_size_max = terms.packet_size_max
        told = NONE
        if self.version == MQTT_5:
            told = Properties(
                session_expiry_interval=accepted.session_expiry_s,
                assigned_client_identifier=accepted.assigned_client_id,
                receive_maximum=terms.receive_maximum,
                topic_alias_maximum=terms.topic_alias_max or None,
                maximum_packet_size=terms.packet_size_max,
                server_keep_alive=None if self.keep_alive_s == client.keep_alive else self.keep_alive_s,
                authentication_method=self._method,
                authentication_data=accepted.octets or None,
            )
        self.state = OPEN
        self.outbox.write(ConnAck(r.SUCCESS, accepted.session_present, told).encode(self.version))
        self._handler.on_open()

    # Messages from the client.

    def _publish(self, packet: Packet) -> None:
        if isinstance(packet, Publish):  # what is large comes by itself
            run = PublishRun(packet.qos << 1 | (RETAIN if packet.retain else 0) | (DUP if packet.dup else 0))
            run.topics.append(packet.topic)
            run.properties.append(packet.properties)
            run.payloads.append(packet.payload)
            if packet.qos:
                run.packet_ids.append(packet.packet_id)
        else:
            assert isinstance(packet, PublishRun)
            run = packet
        if self.version == MQTT_5:
            self._resolve(run)
            if run.qos:
                self._count(len(run.payloads))
        self._hand_on(run)

    def _hand_on(self, run: PublishRun) -> None:
        """Hand messages on; what it leaves waits, and with it all that follows."""
        traffic = self._traffic
        if traffic is None:
            traffic = self._traffic = self._handler.traffic()
        taken = traffic.on_publish(run)
        self.published += taken
        self._rest = run_from(run, taken) if taken < len(run.payloads) else None

    def _resolve(self, run: PublishRun) -> None:
        """Put topics in the place of topic aliases (section 3.3.2.3.4)."""
        topics = run.topics
        if run.is_alike and run.properties[0].topic_alias is None:
            return
        for at, properties in enumerate(run.properties):
            alias = properties.topic_alias
            if alias is None:
                continue
            if alias > self.terms.topic_alias_max:
                raise MqttError(r.TOPIC_ALIAS_INVALID, f"topic alias {alias} is larger than allowed")
            if self._aliases_in is None:
                self._aliases_in = {}
            if topics[at]:
                self._aliases_in[alias] = topics[at]
            elif (topic := self._aliases_in.get(alias)) is not None:
                topics[at] = topic
            else:
                raise ProtocolError(f"topic alias {alias} has no topic yet")
            if topics[at] != topics[0]:
                run.is_alike = False

    def _count(self, messages: int) -> None:
        self.receiving += messages
        if self.receiving > self.terms.receive_maximum:
            raise MqttError(
                r.RECEIVE_MAXIMUM_EXCEEDED, "more messages than the receive maximum are not acknowledged"
            )

    def _acks(self, packet: Packet) -> None:
        traffic = self._traffic
        if traffic is None:
            traffic = self._traffic = self._handler.traffic()
        if isinstance(packet, AckRun):
            for packet_id in packet.packet_ids:
                traffic.on_ack(packet.kind, packet_id, r.SUCCESS)
        else:
            assert isinstance(packet, Ack)
            traffic.on_ack(packet.kind, packet.packet_id, packet.reason_code)

    def answered(self, messages: int = 1) -> None:
        """Count messages of QoS 1 and 2 that were answered: by PUBACK, PUBCOMP, or a PUBREC with an error."""
        self.receiving = max(0, self.receiving - messages)

    # Other packets.

    def _subscribe(self, packet: Packet) -> None:
        assert isinstance(packet, Subscribe)
        if self._is_bridge:  # version 5 has these options for that
            for each in packet.subscriptions:
                each.no_local = each.retain_as_published = True
        codes = self._handler.on_subscribe(packet)
        if self.state is OPEN:
            self.outbox.write(SubAck(packet.packet_id, codes).encode(self.version))

    def _unsubscribe(self, packet: Packet) -> None:
        assert isinstance(packet, Unsubscribe)
        codes = self._handler.on_unsubscribe(packet)
        if self.state is OPEN:
            self.outbox.write(UnsubAck(packet.packet_id, codes).encode(self.version))

    def _ping(self, packet: Packet) -> None:
        self.outbox.write(PINGRESP_OCTETS)

    def _disconnect(self, packet: Packet) -> None:
        assert isinstance(packet, Disconnect)
        self._handler.on_disconnect(packet)
        self._drop(f"the client left: {r.NAMES.get(packet.reason_code, packet.reason_code)}")

    def _leave(self, packet: Packet) -> None:
        """Take a DISCONNECT in the middle of a login."""
        self._drop("the client left during its login")

    # Messages to the client.

    def send(
        self, field: bytes, payload: bytes, properties: bytes, qos: int, packet_id: int, flags: int
    ) -> bool:
        """Send a PUBLISH; `flags` are RETAIN and DUP. Return False if it is larger than the client takes.

        `field` is the topic with its size in front, `properties` what `encode_properties` returns, or nothing in
        version 3.1.1.
        """
        if self._aliases_out_max:
            field, properties = self._aliased(field, properties)
        size = len(field) + 2 * bool(qos) + len(properties) + len(payload)
        if size + 5 > self.packet_size_max and not self._fits(size):
            return False
        outbox = self.outbox
        outbox.wrote(
            append_publish(outbox.open(), FIRST | qos << 1 | flags, field, packet_id, properties, payload)
        )
        return True

    def _fits(self, size: int) -> bool:
        return 1 + (1 if size < 1 << 7 else 2 if size < 1 << 14 else 3 if size < 1 << 21 else 4) + size <= (
            self.packet_size_max
        )

    def _aliased(self, field: bytes, properties: bytes) -> tuple[bytes, bytes]:
        """Return the topic, or an empty one, and the properties with its alias, if it gets one."""
        if self._aliases_out is None:
            self._aliases_out = {}
        aliases = self._aliases_out
        alias = aliases.get(field)
        if alias is not None:
            return b"\0\0", _with_alias(properties, alias)
        if len(aliases) < self._aliases_out_max:
            alias = aliases[field] = len(aliases) + 1
            return field, _with_alias(properties, alias)
        return field, properties

    # The end.

    def deadline(self) -> float | None:
        state = self.state
        if state is CLOSED:
            return None
        if state is not OPEN and not self._renews:
            return self._handshake_until
        heartbeat = self._heartbeat
        if not self.keep_alive_s or not heartbeat.watching:
            return None
        return heartbeat.received_at + SILENCE * self.keep_alive_s

    def on_deadline(self, now: float) -> None:
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return
        if self.state is not OPEN and not self._renews:
            self._drop(f"it took too long to log in ({self.state.value})")
        else:
            self.gave_up = self.version == MQTT_311
            self.fail(MqttError(r.KEEP_ALIVE_TIMEOUT, f"no packet for {SILENCE} x {self.keep_alive_s} s"))

    def fail(self, error: MqttError) -> None:
        """End the connection for this reason; do nothing if it has ended."""
        if self.state is CLOSED:
            return
        last = self._farewell(error)
        self._drop(error.text, last)

    def _farewell(self, error: MqttError) -> bytes:
        """Return the packet that tells a client why its connection ends; none where the version has no word for it."""
        code, version = error.reason_code, self.version or self._reader.version
        if not version:
            return UNSUPPORTED_OCTETS if code == r.UNSUPPORTED_PROTOCOL_VERSION else b""
        is_in = self.state is OPEN or self._renews
        if version == MQTT_311:
            return b"" if is_in or code not in r.RETURN_CODES else ConnAck(code).encode(version)
        reason = Properties(reason_string=_short(error.text)) if self._tells_reasons else NONE
        if is_in:
            packet = Disconnect(
                code if code in r.OF_SERVERS_DISCONNECT else r.UNSPECIFIED_ERROR, reason
            ).encode(version)
            return packet if len(packet) <= self.packet_size_max else Disconnect(code).encode(version)
        packet = ConnAck(code if code in r.OF_CONNACK else r.UNSPECIFIED_ERROR, False, reason).encode(version)
        return packet if len(packet) <= self.packet_size_max else ConnAck(code).encode(version)

    def _release_some(self) -> bool:
        return self._handler.release_some()

    def _on_end(self) -> None:
        self._handler.on_closed()


def run_from(run: PublishRun, at: int) -> PublishRun:
    """Return the messages of a run from this one on."""
    rest = PublishRun(run.qos << 1 | (RETAIN if run.retain else 0) | (DUP if run.dup else 0))
    rest.topics, rest.properties = run.topics[at:], run.properties[at:]
    rest.payloads, rest.packet_ids = run.payloads[at:], run.packet_ids[at:]
    rest.is_alike = run.is_alike
    return rest


def _with_alias(properties: bytes, alias: int) -> bytes:
    """Return encoded properties with a topic alias besides."""
    size, at = variable_at(properties, 0, len(properties))
    return encode_variable(size + 3) + properties[at:] + bytes((0x23, alias >> 8, alias & 0xFF))


def _short(text: str) -> str:
    """Return a text that can be a reason string."""
    return text.replace("\0", "").encode("utf-8", "replace")[:REASON_MAX].decode("utf-8", "ignore")


NEXT: Final[dict[tuple[State, int], Callable[[Connection, Packet], None]]] = {
    (State.STARTING, CONNECT): Connection._connect,
    (State.SECURING, AUTH): Connection._auth,
    (State.SECURING, DISCONNECT): Connection._leave,
    (State.OPEN, PUBLISH): Connection._publish,
    (State.OPEN, PUBACK): Connection._acks,
    (State.OPEN, PUBREC): Connection._acks,
    (State.OPEN, PUBREL): Connection._acks,
    (State.OPEN, PUBCOMP): Connection._acks,
    (State.OPEN, SUBSCRIBE): Connection._subscribe,
    (State.OPEN, UNSUBSCRIBE): Connection._unsubscribe,
    (State.OPEN, PINGREQ): Connection._ping,
    (State.OPEN, DISCONNECT): Connection._disconnect,
    (State.OPEN, AUTH): Connection._auth_again,
}
WHEN_OPEN: Final = {kind: step for (state, kind), step in NEXT.items() if state is OPEN}
