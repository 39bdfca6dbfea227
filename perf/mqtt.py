"""Load a broker over MQTT 3.1.1 and 5: blocks of PUBLISH packets, and acknowledgements counted in columns.

Each publisher and each consumer is a client, with a connection of its own. Publishers have QoS 0, or with a window of
confirms that of the plan, and a message is confirmed by its PUBACK or PUBCOMP. Consumers subscribe with QoS 0, or that
of the plan if they acknowledge. The identifier of a packet is its message's number, modulo 65535, so that what an
acknowledgement confirms needs no table.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import Final

import attrs

from leveret.perf.block import LITTLE, PACKET_IDS, Pattern
from leveret.perf.connection import Connection, Inbox, set_up
from leveret.perf.deliveries import Run, Shape, Strides, alike
from leveret.perf.dial import connected, heard
from leveret.perf.ends import ConsumerEnd, PublisherEnd, Tally, count_run
from leveret.perf.errors import REFUSED, UNREACHABLE, PerfError
from leveret.perf.plan import Plan, Url
from leveret.perf.shares import SeenBy, body_of, cycle_of, source, subscription
from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as kinds
from leveret.protocols.mqtt.codec import reason_codes
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.properties import Properties

PUBACK: Final = kinds.PUBACK << 4  # first bytes
PUBREC: Final = kinds.PUBREC << 4
PUBREL: Final = kinds.PUBREL << 4 | 2
PUBCOMP: Final = kinds.PUBCOMP << 4
ANSWERS: Final = {PUBREC: PUBREL, PUBREL: PUBCOMP}
ACKS: Final = frozenset((PUBACK, PUBREC, PUBREL, PUBCOMP))
ACK: Final = Shape(4, 0, 0, 0, (0, 1))  # without a reason code
ACKS_MAX: Final = 4096  # that are compared at once
HEAD_MAX: Final = 5  # bytes of first byte and size
SESSION_S: Final = 86400  # that version 5 asks for, of sessions that last


class Setup:
    """A client whose connection is accepted. `buffer` has what came behind the CONNACK.

    `receive_maximum` is the most messages with QoS 1 and 2 that the broker takes at once. Raises PerfError.
    """

    def __init__(self, plan: Plan, client_id: str, is_clean: bool = True) -> None:
        self.socket = connected(plan.url)
        self.buffer = b""
        try:
            self._log_in(plan, client_id, is_clean)
        except BaseException:
            self.socket.close()
            raise

    def _log_in(self, plan: Plan, client_id: str, is_clean: bool) -> None:
        url, version = plan.url, version_of(plan)
        asked = Properties()
        if version == p.MQTT_5:
            asked = Properties(
                session_expiry_interval=None if is_clean else SESSION_S,
                receive_maximum=min(plan.prefetch, PACKET_IDS) or None,
            )
        login = p.Connect(
            version,
            client_id,
            is_clean,
            user_name=login_of(url),
            password=url.password.encode(),
            properties=asked,
        )
        self.socket.sendall(login.encode())
        answer = self._connack(version)
        if answer.reason_code:
            why = reason(answer.reason_code, answer.properties)
            raise PerfError(f"{url} does not let us in: {why}", UNREACHABLE)
        self.receive_maximum = answer.properties.receive_maximum or PACKET_IDS

    def _connack(self, version: int) -> p.ConnAck:
        while True:
            sized = size_at(self.buffer, 0, len(self.buffer))
            if self.buffer and self.buffer[0] != kinds.CONNACK << 4:
                raise PerfError("this is no MQTT broker", UNREACHABLE)
            if sized is not None and len(self.buffer) >= sum(sized):
                size, at = sized
                body, self.buffer = self.buffer[at : at + size], self.buffer[at + size :]
                try:
                    return p.ConnAck.decode(body, version)
                except MqttError as wrong:
                    raise PerfError(f"the broker's packets cannot be understood: {wrong}") from None
            self.buffer += heard(self.socket)


def version_of(plan: Plan) -> int:
    return p.MQTT_5 if plan.protocol == "mqtt5" else p.MQTT_311


def login_of(url: Url) -> str:
    """Return the user name, which has the virtual host in it unless that is the first one."""
    return url.user if url.vhost == "/" else f"{url.vhost}:{url.user}"


def reason(code: int, properties: Properties) -> str:
    return properties.reason_string or reason_codes.NAMES.get(code, f"reason code {code:#04x}")


def size_at(octets: bytes | bytearray, at: int, end: int) -> tuple[int, int] | None:
    """Return the size of a packet's body and where that begins; None if that has not come. Raises PerfError."""
    size = shift = 0
    for place in range(at + 1, min(at + HEAD_MAX, end)):
        octet = octets[place]
        size |= (octet & 0x7F) << shift
        if octet < 0x80:
            return size, place + 1
        shift += 7
    if end - at >= HEAD_MAX:
        raise PerfError("the broker's packets cannot be understood: a size has more than four bytes")
    return None


# Publishing.


def publish_pattern(plan: Plan, publisher: int, topic: str, size: int) -> Pattern:
    """Return the bytes of a PUBLISH, the last of which are its payload."""
    version = version_of(plan)
    qos = plan.qos if plan.confirms else 0
    payload = body_of(plan, publisher, size)
    octets = p.Publish(topic, payload, qos, packet_id=1 if qos else 0).encode(version)
    body_at = len(octets) - len(payload)
    id_at = body_at - 2 - (version == p.MQTT_5) if qos else -1
    return Pattern(octets, body_at if plan.head else -1, packet_id_at=id_at)


# Reading.


class ConnectionMqtt(Connection):
    """The connection of one client: one publisher, or one consumer."""

    def __init__(self, setup: Setup, plan: Plan, inbox: Inbox, tally: Tally) -> None:
        super().__init__(setup.socket, setup.buffer, inbox)
        self.publisher: PublisherEnd | None = None
        self._version = version_of(plan)
        self._tally = tally
        self._now = 0
        self._strides = Strides(self._shape_at, self._on_run)
        self._id_at = 0  # of the packet identifier in the latest delivery; 0: it has none
        self._received = bytearray()  # acknowledgements of deliveries that are not sent yet
        self._answers: list[bytes] = []  # of QoS 2, which are sent at once

    def take(self, octets: bytearray, end: int, now: int) -> int:
        self._now = now
        done = self._strides.take(octets, end)
        if self._answers:
            answers, self._answers = self._answers, []
            self.say(b"".join(answers))
        return done

    def acknowledge(self, channel: int, subscription: ConsumerEnd, at_least: int = 0) -> None:
        count = subscription.to_acknowledge(at_least)
        if count and self._received:
            leaving = bytes(self._received[: 4 * count])
            del self._received[: 4 * count]
            self.say(leaving)

    def _on_run(self, run: Run) -> None:
        count_run(run, self.subscriptions, self._tally, self._now)
        if self._id_at:
            first = run.first()
            ids = run.two_bytes(self._id_at)
            self._received += acks(PUBREC if first & 0x06 == 0x04 else PUBACK, ids)

    def _shape_at(self, octets: bytearray, at: int, end: int) -> Shape | int:
        """Return the shape of a PUBLISH, or the size of other packets, handled already; 0 if one is incomplete."""
        first = octets[at]
        if first in ACKS and octets[at + 1 : at + 2] == b"\2":
            return self._take_acks(octets, at, end, first)
        sized = size_at(octets, at, end)
        if sized is None or sized[0] + sized[1] > end:
            return 0
        size, body = sized
        after = body + size
        if first >> 4 == kinds.PUBLISH:
            return self._delivery_at(octets, at, body, after)
        if first in ACKS:
            self._take_reason(first, octets[body:after])
        else:
            self._take_packet(first, bytes(octets[body:after]))
        return after - at

    def _delivery_at(self, octets: bytearray, at: int, body: int, after: int) -> Shape:
        """Return the shape of a PUBLISH: alike ones differ only in topic, packet identifier and payload."""
        payload = body + 2 + (octets[body] << 8 | octets[body + 1])
        checked = [*range(body - at + 2)]
        self._id_at = 0
        if octets[at] & 0x06:
            self._id_at = payload - at
            payload += 2
        if self._version == p.MQTT_5:
            sized = size_at(octets, payload - 1, after)
            assert sized is not None
            checked += range(payload - at, sized[1] - at)
            payload = sum(sized)
        return Shape(after - at, 0, payload - at, after - payload, tuple(checked))

    def _take_acks(self, octets: bytearray, at: int, end: int, first: int) -> int:
        """Handle acknowledgements without reason codes that follow each other, and return their size."""
        count = min((end - at) // ACK.size, ACKS_MAX)
        if not count:
            return 0
        run = Run(octets, at, alike(octets, at, count, ACK), ACK)
        ids = run.two_bytes(2)
        if first in ANSWERS:
            self._answers.append(acks(ANSWERS[first], ids))
        elif self.publisher is not None:
            self._confirm(self.publisher, ids)
        return run.count * ACK.size

    def _confirm(self, publisher: PublisherEnd, ids: array[int]) -> None:
        count = len(ids)
        first = number_of(ids[0], publisher.low)
        if ids == array("H", range(ids[0], min(ids[0] + count, PACKET_IDS + 1))):
            publisher.settle_range(first, first + count - 1, True, self._now)
            return
        for packet_id in ids:
            publisher.confirm(number_of(packet_id, publisher.low) + 1, False, self._now)

    def _take_reason(self, first: int, body: bytearray) -> None:
        """Handle an acknowledgement with a reason code, of version 5."""
        packet_id, code = body[0] << 8 | body[1], body[2]
        if first in ANSWERS and code < reason_codes.UNSPECIFIED_ERROR:
            self._answers.append(acks(ANSWERS[first], array("H", (packet_id,))))
        elif self.publisher is not None:
            tag = number_of(packet_id, self.publisher.low) + 1
            settle = (
                self.publisher.confirm if code < reason_codes.UNSPECIFIED_ERROR else self.publisher.refuse
            )
            settle(tag, False, self._now)

    def _take_packet(self, first: int, body: bytes) -> None:
        """Handle a packet that is rare. Raises PerfError for one that refuses, or that no client expects."""
        kind = first >> 4
        try:
            packet = p.decode_packet(first, body, self._version, False)
        except MqttError as wrong:
            raise PerfError(f"the broker's packets cannot be understood: {wrong}") from None
        if isinstance(packet, p.SubAck):
            self.unanswered -= 1
            wrong_codes = [code for code in packet.reason_codes if code >= reason_codes.UNSPECIFIED_ERROR]
            if wrong_codes:
                why = reason(wrong_codes[0], packet.properties)
                raise PerfError(f"the broker refuses a subscription: {why}", REFUSED)
        elif isinstance(packet, p.Disconnect):
            why = reason(packet.reason_code, packet.properties)
            raise PerfError(f"the broker has ended the connection: {why}", REFUSED)
        elif kind != kinds.PINGRESP:
            raise PerfError(f"the broker has sent a {kinds.KIND_NAMES[kind]}, which no client expects")


def number_of(packet_id: int, low: int) -> int:
    """Return the number of the message with this packet identifier, `low` being the lowest that it may have."""
    return low + (packet_id - 1 - low) % PACKET_IDS


def acks(first: int, ids: array[int]) -> bytes:
    """Return acknowledgements with this first byte and these packet identifiers."""
    out = bytearray(bytes((first, 2, 0, 0)) * len(ids))
    octets = array("H", ids)
    if LITTLE:
        octets.byteswap()
    written = octets.tobytes()
    out[2::4], out[3::4] = written[::2], written[1::2]
    return bytes(out)


# Setting up.


def publishing(
    plan: Plan, numbers: Sequence[int], inbox: Inbox, tally: Tally, block_max: int
) -> ConnectionMqtt:
    """Return the connection of a publisher."""
    (number,) = numbers
    with set_up(Setup(plan, f"perf-publisher-{os.getpid()}-{number}")) as setup:
        patterns = [publish_pattern(plan, number, key, size) for key, size in cycle_of(plan, number)]
        window = min(plan.confirms, setup.receive_maximum)
        made = ConnectionMqtt(setup, plan, inbox, tally)
        made.publisher = source(attrs.evolve(plan, confirms=window), patterns, block_max, tally)
    made.sources = [made.publisher]
    return made


def consuming(plan: Plan, numbers: Sequence[int], inbox: Inbox, tally: Tally, seen: SeenBy) -> ConnectionMqtt:
    """Return the connection of a consumer, which subscribes with its first message."""
    (number,) = numbers
    qos = plan.qos if plan.ack_every else 0
    share = f"$share/{plan.share}/" if plan.share else ""
    filters = [share + plan.filter(each) for each in plan.queues_of(number, plan.consumers)]
    with set_up(Setup(plan, client_id(plan, number), not plan.persistent)) as setup:
        asked = tuple(p.Subscription(each, qos) for each in filters)
        setup.socket.sendall(p.Subscribe(1, asked).encode(version_of(plan)))
        made = ConnectionMqtt(setup, plan, inbox, tally)
        made.subscriptions = {0: subscription(plan, number, tally, seen)}
        made.unanswered = 1
    return made


def client_id(plan: Plan, number: int) -> str:
    """Return a consumer's client id, which is the same in the next load if its session lasts."""
    return f"perf-consumer-{number}" if plan.persistent else f"perf-consumer-{os.getpid()}-{number}"


class Sessions:
    """The sessions of a plan's consumers, which outlive their connections if messages are persistent."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._begun = False

    def declare(self) -> None:
        """End those that an earlier load has left, if the plan says so. Raises PerfError."""
        self._begun = True
        if self._plan.delete:
            self._end()

    def remove(self) -> None:
        """End those that last, unless they are to be kept."""
        if self._begun and not self._plan.keep:
            self._end()

    def _end(self) -> None:
        plan = self._plan
        for number in range(plan.consumers if plan.persistent else 0):
            Setup(plan, client_id(plan, number)).socket.close()


def preparation(plan: Plan) -> Sessions:
    return Sessions(plan)
