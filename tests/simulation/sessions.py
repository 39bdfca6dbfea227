"""The world of sessions: devices over MQTT that come and go, a slow disk, and a node that is killed.

A device does as MQTT 5 asks: what is not acknowledged it sends again when it is back, and it knows the identifiers of
QoS 2. So the model needs no commits: what a device was told is there after a kill, and in the end each message has
come to each session that had subscribed before, with QoS 2 once; the same holds for wills of connections that broke
off. A shared subscription is one session more, whoever of its members gets a message: another one gets it again only
if the connection of the first has ended before it had acknowledged. What has QoS 0, from its publisher or by the
subscription, comes once at most and in order, and comes for certain once all is calm. Of retained messages there is
the last one that was acknowledged, or one that was sent after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from random import Random
from typing import Final

import attrs

from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.protocols.mqtt.broker.retained import retained_of
from leveret.protocols.mqtt.codec.packets import (
    Ack,
    ConnAck,
    Connect,
    Disconnect,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from leveret.protocols.mqtt.codec.properties import NONE, PUBACK, PUBCOMP, PUBREC, PUBREL, Properties
from leveret.protocols.mqtt.codec.reason_codes import NO_SUBSCRIPTION_EXISTED, PACKET_IDENTIFIER_NOT_FOUND
from leveret.testing.simulation import World
from tests.mqtt.peer import Peer

from .held import Disk, MemoryDisk, Reached
from .node import Connection, SimulatedNode

DEVICES: Final = 4
EXPIRY_S: Final = 86_400
IN_FLIGHT: Final = 3  # messages on their way to a device at most
OUT_MAX: Final = 6  # messages that a device has sent and that are not acknowledged
ROUNDS_MAX: Final = 200  # in which all that is there has come to where it belongs
WILLS: Final = "w"  # the topic of all wills
UNANSWERED: Final = "z/0"  # the filter to which all subscribe with QoS 0, and its topic
FILTERS: Final = ("a", "b", "+", WILLS, UNANSWERED)
SHARES: Final = ("$share/g/s/1", "$share/g/s/+")  # with their places as identifiers, from 1 on
TOPICS: Final = ("a", "b", UNANSWERED, "s/1", "s/1", "s/2")
DELAY_S: Final = 2  # of some wills
ASKED, GRANTED, LEAVING = "asked", "granted", "leaving"


class HonestConnection(Connection):
    """A connection whose client hears what is sent, and not what waits for the disk."""

    def take(self) -> bytes:
        self.flush()
        octets = bytes(self._sent)
        self._sent.clear()
        self.digest.update(octets)
        return octets


@attrs.define(eq=False)
class Saying:
    """A message, or the will of a connection."""

    body: bytes
    number: int
    topic: str
    qos: int
    sender: Device
    expected: set[Device] = attrs.field(factory=set)  # the devices that have to get it
    allowed: set[Device] = attrs.field(factory=set)  # those that may
    is_due: bool = True  # False: the will of a connection that has not ended, or has ended well
    is_repeated: bool = False  # it was sent again, as it was not acknowledged
    is_released: bool = False  # the broker has it for certain, with QoS 2
    left_in: int = 0  # the commit of the good end of its connection
    shares: set[str] = attrs.field(factory=set)  # the shared subscriptions of which a member has to get it
    given: dict[str, list[Given]] = attrs.field(factory=dict)  # to the members of each


@attrs.frozen
class Given:
    """A message that a member of a shared subscription got."""

    device: Device
    era: int
    qos: int

    @property
    def may_come_back(self) -> bool:
        """Whether the member may not have acknowledged it before its connection ended."""
        return self.qos == 1 and self.era < self.device.era


def is_delayed(will: Saying) -> bool:
    """Return whether the broker is to wait before it publishes a will."""
    return will.number % 2 == 1


class Device:
    """A client with one id, and what it knows, over all its connections."""

    def __init__(self, number: int) -> None:
        self.name = f"d{number}"
        self.qos = 1 + number % 2
        self.connection: HonestConnection | None = None
        self.peer: Peer | None = None
        self.is_in = False  # the broker has said so
        self.has_session = False  # likewise
        self.era = 0  # rises when a connection ends
        self.filters: dict[str, str] = {}
        self.shares: set[str] = set()  # the shared subscriptions that it has ever had
        self.asked: dict[int, str] = {}  # filters by packet identifier
        self.out: dict[int, Saying] = {}  # by packet identifier
        self.open: set[int] = set()  # identifiers of QoS 2 that it has had, and that are not released
        self.answers: list[Ack] = []
        self.got: Counter[bytes] = Counter()
        self.last_era: dict[bytes, int] = {}
        self.last_start: dict[bytes, int] = {}  # of the node
        self.newest: dict[tuple[Device, str, int], int] = {}  # the last number of a sender, a topic and a QoS
        self.will: Saying | None = None
        self._last_id = 0

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def send(self, packet: object) -> None:
        assert self.peer is not None
        self.peer.send(packet)

    def subscribed(self, topic: str, *states: str) -> bool:
        return any(state in states and matches(each, topic) for each, state in self.filters.items())


def matches(topic_filter: str, topic: str) -> bool:
    return topic_filter == topic or (topic_filter == "+" and "/" not in topic)


def shares_of(topic: str) -> list[str]:
    """Return the shared subscriptions that a topic matches."""
    return [each for each in SHARES if each.endswith((f"/{topic}", "/s/+")) and topic.startswith("s/")]


class Sessions(World):
    """Devices with sessions that are kept, on a node that is not always there."""

    weights: Mapping[str, int] = {
        "connect": 16,
        "subscribe": 14,
        "unsubscribe": 4,
        "publish": 20,
        "retain": 8,
        "answer": 18,
        "land": 26,
        "tick": 5,
        "lose": 6,
        "take_over": 4,
        "leave": 3,
        "no_space": 2,
        "crash": 5,
        "io_error": 1,
        "restart": 2,
    }

    def __init__(self) -> None:
        self.history: list[str] = []
        self._digest = sha256()
        self.node = SimulatedNode(self._disk(), 0.0, 1_000_000_000.0)
        self.devices = [Device(number) for number in range(1, DEVICES + 1)]
        self.sayings: dict[bytes, Saying] = {}
        # By topic: what may be there, beginning with the last that was acknowledged.
        self.retained: dict[str, list[bytes]] = {f"r/{each.name}": [b""] for each in self.devices}
        self._number = 0
        self._starts = 0
        self.node.settle()
        self._land_all()

    def _disk(self) -> Disk:
        return MemoryDisk()

    def _disk_again(self) -> Disk:
        """Return the disk as the next start finds it."""
        return self.node.disk.again()

    def say(self, text: str) -> None:
        self.history.append(f"  {self.node.broker.now:8.3f} s  commit {self.node.journal.open}: {text}")

    @property
    def digest(self) -> str:
        """A digest of all bytes that devices got."""
        whole = self._digest.copy()
        for each in self.node.connections:
            whole.update(each.digest.digest())
        return whole.hexdigest()

    def _any(self, random: Random) -> Device | None:
        able = [each for each in self.devices if each.is_in and each.connection and not each.connection.waits]
        return random.choice(able) if able else None

    # The model.

    def _hear_all(self) -> None:
        for device in self.devices:
            while device.peer is not None:
                device.peer.read()
                heard, device.peer.heard = device.peer.heard, []
                if not heard:
                    break
                for packet in heard:
                    self._hear(device, packet)

    def _hear(self, device: Device, packet: object) -> None:
        match packet:
            case ConnAck():
                self._admit(device, packet)
            case SubAck() | UnsubAck():
                (code,) = packet.reason_codes
                assert code in (0, 1, 2, NO_SUBSCRIPTION_EXISTED), f"{device.name} is told {code:#x}"
                topic_filter = device.asked.pop(packet.packet_id)
                if device.filters[topic_filter] == LEAVING:
                    del device.filters[topic_filter]
                else:
                    device.filters[topic_filter] = GRANTED
            case Publish():
                self._receive(device, packet)
            case Ack(kind=kind, packet_id=packet_id) if kind == PUBREL:
                device.open.discard(packet_id)
                device.answers.append(Ack(PUBCOMP, packet_id))
            case Ack():
                self._acknowledged(device, packet)
            case _:
                raise AssertionError(f"{device.name} hears {packet}")

    def _admit(self, device: Device, packet: ConnAck) -> None:
        assert packet.reason_code == 0, f"{device.name} is refused: {packet.reason_code:#x}"
        assert packet.session_present or not device.has_session, f"the session of {device.name} is gone"
        self.say(f"{device.name} is in")
        device.is_in = device.has_session = True
        for packet_id, saying in device.out.items():
            if saying.is_released:
                saying.is_repeated = True
                device.send(Ack(PUBREL, packet_id))
            else:
                self._send(device, packet_id, saying, dup=True)
        for topic_filter, state in list(device.filters.items()):
            if state != GRANTED:
                self._ask(device, topic_filter)

    def _acknowledged(self, device: Device, packet: Ack) -> None:
        saying = device.out[packet.packet_id]
        # What was released before the connection ended may be done with (section 3.7.2.1).
        is_known = saying.is_repeated and packet.reason_code == PACKET_IDENTIFIER_NOT_FOUND
        assert packet.reason_code < 0x80 or is_known, f"{device.name} is refused: {packet}"
        if packet.kind == PUBREC:
            saying.is_released = True
            device.send(Ack(PUBREL, packet.packet_id))
            return
        assert packet.kind == (PUBACK if saying.qos == 1 else PUBCOMP), f"{device.name} hears {packet}"
        del device.out[packet.packet_id]
        if (there := self.retained.get(saying.topic)) is not None:
            place = there.index(saying.body)
            del there[:place]

    def _receive(self, device: Device, packet: Publish) -> None:
        if packet.qos == 2 and packet.packet_id in device.open:
            device.answers.append(Ack(PUBREC, packet.packet_id))
            return
        if packet.qos == 2:
            device.open.add(packet.packet_id)
        if packet.qos:
            device.answers.append(Ack(PUBREC if packet.qos == 2 else PUBACK, packet.packet_id))
        body = packet.payload
        saying = self.sayings.get(body)
        assert saying is not None, f"{body!r} was never said"
        self.say(f"{device.name} gets {body.decode()}")
        assert saying.is_due, f"the will {body!r} of a connection that has not broken off is given"
        qos = 0 if saying.topic == UNANSWERED else min(device.qos, saying.qos)
        assert packet.qos == qos, f"{body!r} has QoS {packet.qos}"
        if packet.properties.subscription_identifiers:
            (place,) = packet.properties.subscription_identifiers
            self._receive_shared(device, saying, SHARES[place - 1], qos)
            return
        assert device in saying.allowed, f"{body!r} of '{saying.topic}' is given to {device.name}"
        device.got[body] += 1
        if device.got[body] == 1 and not saying.is_repeated:
            key = (saying.sender, saying.topic, saying.qos)
            assert saying.number > device.newest.get(key, 0), f"{body!r} comes late to {device.name}"
            device.newest[key] = saying.number
        elif device.got[body] > 1:
            if qos:
                assert qos == 1, f"{device.name} gets {body!r} with QoS 2 twice"
                is_allowed = saying.is_repeated or device.last_era[body] < device.era
            else:
                was_killed = device.last_start[body] < self._starts  # it does not wait for the disk
                is_allowed = saying.is_repeated and (saying.qos == 1 or was_killed)
            assert is_allowed, f"{device.name} gets {body!r} twice on one connection"
        device.last_era[body] = device.era
        device.last_start[body] = self._starts

    def _receive_shared(self, device: Device, saying: Saying, share: str, qos: int) -> None:
        body = saying.body
        assert share in device.shares, f"{body!r} of '{share}' is given to {device.name}"
        assert share in shares_of(saying.topic), f"{body!r} of '{saying.topic}' is given to '{share}'"
        before = saying.given.setdefault(share, [])
        for each in before:
            is_allowed = each.may_come_back or (saying.is_repeated and saying.qos == 1)
            assert is_allowed, f"{body!r} of '{share}' is given to {each.device.name} and to {device.name}"
        before.append(Given(device, device.era, qos))

    def _said(self, device: Device, topic: str, qos: int, body: bytes | None = None) -> Saying:
        self._number += 1
        saying = Saying(b"m%d" % self._number if body is None else body, self._number, topic, qos, device)
        if body is None:
            self.sayings[saying.body] = saying
        return saying

    def _will_come(self, saying: Saying, is_certain: bool = True) -> None:
        """Note to whom a message goes that is published now."""
        for each in self.devices:
            if each.subscribed(saying.topic, ASKED, GRANTED, LEAVING):
                saying.allowed.add(each)
            if is_certain and each.subscribed(saying.topic, GRANTED):
                saying.expected.add(each)
        if is_certain:
            saying.shares.update(each for each in shares_of(saying.topic) if self._is_held(each))

    def _is_held(self, share: str) -> bool:
        """Return whether a shared subscription has a member for certain."""
        return any(each.filters.get(share) == GRANTED for each in self.devices)

    def _send(self, device: Device, packet_id: int, saying: Saying, dup: bool = False) -> None:
        is_retained = saying.topic in self.retained
        if dup:
            saying.is_repeated = True
            self._will_come(saying, is_certain=False)  # also to those that have subscribed since
        device.send(Publish(saying.topic, saying.body, saying.qos, is_retained, dup, packet_id))

    def _end(self, device: Device, is_lost: bool) -> None:
        """The connection of a device is over; lost, its will is due."""
        device.era += 1
        device.asked.clear()
        device.answers.clear()
        will, was_in = device.will, device.is_in
        device.connection = device.peer = device.will = None
        device.is_in = False
        if will is None:
            return
        if is_lost and not is_delayed(will):
            will.is_due = True
            self._will_come(will, was_in)
        else:  # who gets it, if it comes, depends on when that is
            will.is_due = is_lost
            will.left_in = 0 if is_lost else self.node.journal.open
            will.allowed.update(self.devices)

    # Checks.

    def check(self) -> None:
        assert not self.node.failed, f"the store has failed: {self.node.failed[0]}"
        self._hear_all()
        for device in self.devices:
            assert device.peer is None or not device.peer.front.closed, f"{device.name} is turned away"
        retained = retained_of(self.node.host)
        for topic, candidates in self.retained.items():
            found = retained.get(topic)
            body = b"" if found is None else found.payload
            assert body in candidates, f"'{topic}' has {body!r} retained, which is none of {candidates}"

    def finish(self) -> None:
        """Everything has come to where it belongs, once all are back and answer."""
        self._calm_down()
        for device in self.devices:  # none of these is lost now
            for topic in ("a", UNANSWERED, "s/1"):
                saying = self._said(device, topic, 0)
                self._will_come(saying)
                self._publish(device, saying)
        self._calm_down()
        for saying in self.sayings.values():
            for device in saying.expected:
                count = device.got[saying.body]
                assert count, f"{saying.body!r} of '{saying.topic}' never comes to {device.name}"
            for share in saying.shares:
                assert saying.given.get(share), f"{saying.body!r} never comes to a member of '{share}'"
        for topic, (last, *others) in self.retained.items():
            assert not others, f"{others} of '{topic}' are not acknowledged"
            found = retained_of(self.node.host).get(topic)
            assert (b"" if found is None else found.payload) == last
        for name, queue in self.node.host.queues.items():
            assert not queue.ready, f"'{name}' has {queue.ready} messages"
            assert not queue.unsettled, f"'{name}' has {queue.unsettled} messages that are out"

    def _calm_down(self) -> None:
        """Have all come back and answer, until there is nothing more to answer."""
        quiet = rounds = 0
        while quiet < 3:
            rounds += 1
            assert rounds < ROUNDS_MAX, f"{[each.name for each in self.devices if self._is_busy(each)]} wait"
            self._settle_disk()
            for device in self.devices:
                if device.connection is None:
                    self._connect(device)
            self._hear_all()
            is_busy = any(self._is_busy(device) for device in self.devices)
            for device in self.devices:
                self._answer(device, len(device.answers))
            quiet = 0 if is_busy else quiet + 1
        self.check()

    @staticmethod
    def _is_busy(device: Device) -> bool:
        return bool(device.answers or device.out or device.asked)

    # What devices do.

    def step_connect(self, random: Random) -> None:
        away = [each for each in self.devices if each.connection is None]
        if away:
            self._connect(random.choice(away), random)

    def _connect(self, device: Device, random: Random | None = None) -> None:
        self.say(f"{device.name} connects")
        device.peer = Peer(self.node)
        device.connection = HonestConnection(self.node, device.peer, random or Random(0))
        will = None
        if random is not None:
            device.will = self._said(device, WILLS, 2)
            device.will.is_due = False
            delay = Properties(will_delay_interval=DELAY_S) if is_delayed(device.will) else NONE
            will = Will(WILLS, device.will.body, 2, False, delay)
        properties = Properties(session_expiry_interval=EXPIRY_S, receive_maximum=IN_FLIGHT)
        device.send(Connect(5, device.name, False, 0, "guest", b"guest", will, properties))

    def step_subscribe(self, random: Random) -> None:
        if (device := self._any(random)) is not None:
            topic_filter = random.choice(FILTERS if random.random() < 0.6 else SHARES)
            if device.filters.get(topic_filter) is None:
                device.filters[topic_filter] = ASKED
                self._ask(device, topic_filter)

    def step_unsubscribe(self, random: Random) -> None:
        if (device := self._any(random)) is None:
            return
        if granted := [each for each, state in device.filters.items() if state == GRANTED]:
            topic_filter = random.choice(granted)
            device.filters[topic_filter] = LEAVING
            for saying in self.sayings.values():
                if not device.subscribed(saying.topic, GRANTED):
                    saying.expected.discard(device)
                if topic_filter in SHARES and not self._is_held(topic_filter):
                    saying.shares.discard(topic_filter)  # the last one has left
            self._ask(device, topic_filter)

    def _ask(self, device: Device, topic_filter: str) -> None:
        packet_id = device.next_id()
        device.asked[packet_id] = topic_filter
        self.say(f"{device.name} asks for '{topic_filter}': {device.filters[topic_filter]}")
        if device.filters[topic_filter] == LEAVING:
            device.send(Unsubscribe(packet_id, (topic_filter,)))
            return
        properties = NONE
        if topic_filter in SHARES:
            device.shares.add(topic_filter)
            properties = Properties(subscription_identifiers=(SHARES.index(topic_filter) + 1,))
        qos = 0 if topic_filter == UNANSWERED else device.qos
        device.send(Subscribe(packet_id, (Subscription(topic_filter, qos),), properties))

    def step_publish(self, random: Random) -> None:
        for _ in range(random.randint(1, 3)):
            device = self._any(random)
            if device is not None and len(device.out) < OUT_MAX:
                saying = self._said(device, random.choice(TOPICS), random.choice((0, 1, 2)))
                self._will_come(saying, is_certain=saying.qos > 0 and saying.topic != UNANSWERED)
                self._publish(device, saying)

    def step_retain(self, random: Random) -> None:
        device = self._any(random)
        if device is None or len(device.out) >= OUT_MAX:
            return
        topic = f"r/{device.name}"
        there = self.retained[topic]
        # An empty one deletes; another follows only when that is acknowledged, so that bodies tell which it is.
        body = b"" if there[-1] and b"" not in there and random.random() < 0.3 else b"r%d" % self._number
        if body in there:
            return
        there.append(body)
        self._publish(device, self._said(device, topic, 1 + int(device.name[1:]) % 2, body))

    def _publish(self, device: Device, saying: Saying) -> None:
        packet_id = 0
        if saying.qos:
            packet_id = device.next_id()
            device.out[packet_id] = saying
        self.say(f"{device.name} publishes {saying.body.decode()} to '{saying.topic}' with QoS {saying.qos}")
        self._send(device, packet_id, saying)

    def step_answer(self, random: Random) -> None:
        if (device := self._any(random)) is not None:
            self._answer(device, random.randint(1, 4))

    def _answer(self, device: Device, count: int) -> None:
        for _ in range(min(count, len(device.answers))):
            device.send(device.answers.pop(0))

    def step_lose(self, random: Random) -> None:
        """A connection breaks off."""
        if connected := [each for each in self.devices if each.connection is not None]:
            self._lose(random.choice(connected))

    def _lose(self, device: Device) -> None:
        self.say(f"{device.name} breaks off")
        connection = device.connection
        assert connection is not None
        self._end(device, is_lost=True)
        connection.end()

    def step_take_over(self, random: Random) -> None:
        """A second connection of a device takes its session over: the first one is closed, as if it had broken off."""
        connected = [each for each in self.devices if each.connection is not None]
        if not connected:
            return
        device = random.choice(connected)
        connection, peer = device.connection, device.peer
        assert connection is not None
        assert peer is not None
        self.say(f"another connection takes the session of {device.name} over")
        self._end(device, is_lost=True)
        self._connect(device, random)
        assert peer.front.closed, f"the first connection of {device.name} is still there"
        connection.end()

    def step_leave(self, random: Random) -> None:
        """A device says goodbye: its will is not published."""
        if (device := self._any(random)) is None or device.connection is None:
            return
        self.say(f"{device.name} leaves")
        connection = device.connection
        device.send(Disconnect(0))
        self._end(device, is_lost=False)
        connection.end()

    # The node and its disk.

    def step_tick(self, random: Random) -> None:
        self._pass(random.choice((0.1, 1.0, DELAY_S + 0.5)))

    def _pass(self, seconds: float) -> None:
        self.node.advance(seconds)
        if not self.node.broker.alarms.reason:
            self.node.read_on()

    def step_land(self, random: Random) -> None:
        if self.node.disk.flying is not None:
            number = self.node.disk.flying.number
            self.node.disk.land()
            self.node.settle()
            self.say(f"commit {number} is on disk")

    def step_no_space(self, random: Random) -> None:
        if self.node.disk.flying is not None:
            self.say("the disk is full")
            self.node.disk.fail(NoSpaceError("the disk is full"))
            self.node.settle()

    def _land_all(self) -> None:
        while self.node.disk.flying is not None:
            self.step_land(Random(0))

    def _settle_disk(self) -> None:
        """Let the disk get well and write all there is."""
        for _ in range(3):
            self._pass(1.5)
            self._land_all()

    def step_crash(self, random: Random) -> None:
        self.say("the node is killed")
        (reached,) = self.node.disk.cut(random)
        self._start_again(reached)

    def step_io_error(self, random: Random) -> None:
        if self.node.disk.flying is not None:
            self.say("input/output error")
            self.node.disk.fail(StoreError("input/output error"))
            (reached,) = self.node.disk.cut(random)
            self._start_again(reached)

    def step_restart(self, random: Random) -> None:
        """The node is stopped properly, and starts again."""
        self.say("the node is stopped")
        self._settle_disk()
        self._hear_all()
        for device in self.devices:
            if device.connection is not None:
                self._lose(device)
        self._settle_disk()
        self.node.persistence.close()
        self._start_again(Reached.whole(None))

    def _start_again(self, reached: Reached) -> None:
        """Start on what is on disk."""
        self._digest.update(self.digest.encode())
        self._starts += 1
        for device in self.devices:
            if device.connection is not None:
                self._end(device, is_lost=True)
            device.era += 1
        for saying in self.sayings.values():
            if saying.left_in and reached.objects is not None and saying.left_in > reached.objects:
                saying.is_due = True
            saying.left_in = 0  # commits are counted from each start on
        now, wall = self.node.clock.now(), self.node.clock.wall()
        self.node = SimulatedNode(self._disk_again(), now, wall)
        self.say("the node has started")
