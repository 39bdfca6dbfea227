"""The machine of a connection: each state with each input, and the packet identifiers of a session."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.errors import MqttError, ProtocolError
from leveret.protocols.mqtt.codec.packets import (
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from leveret.protocols.mqtt.codec.properties import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Properties,
)
from leveret.protocols.mqtt.codec.reader import PublishRun, Reader
from leveret.protocols.mqtt.machine.connection import Connection
from leveret.protocols.mqtt.machine.contract import Accepted, Answer, Challenge, Handler, Renewed, Terms
from leveret.protocols.mqtt.machine.flights import RELEASED, SENT, Fate, Flights
from leveret.protocols.mqtt.machine.traffic import Traffic
from leveret.protocols.shared.machine.contract import Wait, Writer
from leveret.protocols.shared.machine.states import State

TERMS = Terms(
    packet_size_max=10_000,
    connect_size_max=1000,
    connect_timeout_s=10,
    keep_alive_max_s=0,
    receive_maximum=10,
    in_flight_max=10,
    topic_alias_max=4,
)
METHOD = Properties(authentication_method="TEST", authentication_data=b"x")


class Out(Writer):
    """Collects what is written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def open(self) -> list[bytes]:
        return self.pieces

    def wrote(self, count: int) -> None: ...

    def written(self) -> int:
        return sum(map(len, self.pieces))


class Served(Handler, Traffic):
    """Notes what is called, and answers as it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.turn = 1000  # messages that are taken at once
        self.answers: list[Answer | MqttError] = []

    def _answer(self, name: str) -> Answer:
        self.calls.append(name)
        answer = self.answers.pop(0) if self.answers else Accepted()
        if isinstance(answer, MqttError):
            raise answer
        return answer

    def on_connect(self, connect: Connect) -> Answer:
        return self._answer("connect")

    def on_auth(self, octets: bytes, again: bool) -> Answer:
        return self._answer("auth again" if again else "auth")

    def on_checked(self) -> Answer:
        return self._answer("checked")

    def on_open(self) -> None:
        self.calls.append("open")

    def traffic(self) -> Traffic:
        return self

    def on_publish(self, run: PublishRun) -> int:
        taken = min(self.turn, len(run.topics))
        self.calls += [f"publish {topic}" for topic in run.topics[:taken]]
        return taken

    def on_ack(self, kind: int, packet_id: int, reason_code: int) -> None:
        self.calls.append(f"ack {kind}")

    def on_subscribe(self, subscribe: Subscribe) -> tuple[int, ...]:
        self.calls.append("subscribe")
        return (0,)

    def on_unsubscribe(self, unsubscribe: Unsubscribe) -> tuple[int, ...]:
        self.calls.append("unsubscribe")
        return (0,)

    def on_disconnect(self, disconnect: Disconnect) -> None:
        self.calls.append("disconnect")

    def on_closed(self) -> None:
        self.calls.append("closed")

    def release_some(self) -> bool:
        return False


class Bench:
    """One connection, and the packets that it has sent."""

    def __init__(self, version: int = 5, *answers: Answer | MqttError, method: bool = False) -> None:
        self.version = version
        self.served = Served()
        self.served.answers = list(answers)
        self.out = Out()
        self.connection = Connection(self.served, TERMS, self.out, 0.0)
        self.reader = Reader(from_client=False, version=version)
        self.method = method

    def send(self, *packets: object, now: float = 0.0) -> Bench:
        data = b"".join(each.encode(self.version) for each in packets)  # type: ignore[attr-defined]
        self.connection.receive(data, now)
        return self

    def connect(self, keep_alive: int = 0) -> Bench:
        said = METHOD if self.method else Properties()
        return self.send(Connect(self.version, "me", keep_alive=keep_alive, properties=said))

    def heard(self) -> list[object]:
        self.reader.push(b"".join(self.out.pieces))
        self.out.pieces.clear()
        return list(iter(self.reader.take, None))


PACKETS = {
    "connect": Connect(5, "me"),
    "publish": Publish("a"),
    "puback": Ack(PUBACK, 1),
    "pubrec": Ack(PUBREC, 1),
    "pubrel": Ack(PUBREL, 1),
    "pubcomp": Ack(PUBCOMP, 1),
    "subscribe": Subscribe(1, (Subscription("a"),)),
    "unsubscribe": Unsubscribe(1, ("a",)),
    "ping": PingReq(),
    "disconnect": Disconnect(),
    "auth": Auth(r.CONTINUE_AUTHENTICATION, METHOD),
    "auth again": Auth(r.REAUTHENTICATE, METHOD),
}

IN = frozenset(
    {"publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe", "unsubscribe", "ping", "disconnect"}
)
ALLOWED = {
    State.STARTING: frozenset({"connect"}),
    State.SECURING: frozenset({"auth", "disconnect"}),
    State.OPEN: IN | {"auth again"},
}


@pytest.mark.parametrize("packet", PACKETS)
@pytest.mark.parametrize("state", ALLOWED)
def test_each_packet_in_each_state(state: State, packet: str) -> None:
    answers: tuple[Answer, ...] = (Challenge(b"?"),) if state is State.SECURING else ()
    bench = Bench(5, *answers, method=True)
    if state is not State.STARTING:
        bench.connect()
    assert bench.connection.state is state
    bench.served.calls.clear()
    bench.heard()
    if packet == "auth again":
        bench.served.answers = [Renewed()]
    bench.send(PACKETS[packet])
    ends = packet not in ALLOWED[state] or packet == "disconnect"
    assert (bench.connection.state is State.CLOSED) is ends
    assert bench.served.calls.count("closed") == ends
    if packet not in ALLOWED[state]:
        assert [each for each in bench.served.calls if each != "closed"] == []
        told = [each.reason_code for each in bench.heard() if isinstance(each, ConnAck | Disconnect)]
        assert told == ([] if state is State.STARTING else [r.PROTOCOL_ERROR])


def test_what_comes_while_a_password_is_checked_waits() -> None:
    bench = Bench(5, Wait.WAIT, Wait.WAIT, Accepted()).connect()
    assert bench.connection.state is State.CHECKING
    bench.send(PACKETS["publish"])
    assert bench.served.calls == ["connect", "checked"]
    bench.send()
    assert bench.served.calls == ["connect", "checked", "checked", "open", "publish a"]


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (5, r.NOT_AUTHORIZED, [ConnAck(r.NOT_AUTHORIZED, False, Properties(reason_string="no"))]),
        (4, r.NOT_AUTHORIZED, [ConnAck(r.NOT_AUTHORIZED)]),
        (4, r.PACKET_TOO_LARGE, []),
    ],
)
def test_a_refusal_is_told_as_the_version_can(version: int, code: int, told: list[object]) -> None:
    bench = Bench(version, MqttError(code, "no")).connect()
    assert bench.heard() == told
    assert bench.connection.closed


def test_a_client_can_ask_for_no_reasons() -> None:
    bench = Bench(5, MqttError(r.NOT_AUTHORIZED, "no"))
    bench.send(Connect(5, "me", properties=Properties(request_problem_information=0)))
    assert bench.heard() == [ConnAck(r.NOT_AUTHORIZED)]


def test_an_enhanced_authentication_and_another_one() -> None:
    bench = Bench(5, Challenge(b"1"), Accepted(octets=b"2"), Challenge(b"3"), Renewed(b"4"), method=True)
    bench.connect().send(PACKETS["auth"], PACKETS["publish"])
    first, connack = bench.heard()
    assert first == Auth(
        r.CONTINUE_AUTHENTICATION, Properties(authentication_method="TEST", authentication_data=b"1")
    )
    assert isinstance(connack, ConnAck)
    assert connack.properties.authentication_data == b"2"
    bench.send(PACKETS["auth again"], PACKETS["publish"], PACKETS["auth"])
    codes = [each.reason_code for each in bench.heard() if isinstance(each, Auth)]
    assert codes == [r.CONTINUE_AUTHENTICATION, r.SUCCESS]
    calls = ["connect", "auth", "open", "publish a", "auth again", "publish a", "auth"]
    assert bench.served.calls == calls


@pytest.mark.parametrize("method", ["OTHER", None])
def test_the_method_stays_the_same(method: str | None) -> None:
    bench = Bench(5, method=True).connect()
    bench.send(Auth(r.REAUTHENTICATE, Properties(authentication_method=method)))
    assert bench.connection.closed


@pytest.mark.parametrize("version", [4, 5])
def test_silence_ends_a_connection_after_one_and_a_half_keep_alives(version: int) -> None:
    bench = Bench(version).connect(keep_alive=10)
    connection = bench.connection
    assert connection.deadline() == 15
    bench.send(PingReq(), now=4.0)
    connection.on_deadline(15.0)
    assert connection.state is State.OPEN
    connection.pause_monitor()
    assert connection.deadline() is None
    connection.resume_monitor(30.0)
    connection.on_deadline(44.9)
    assert connection.state is State.OPEN
    bench.heard()
    connection.on_deadline(45.0)
    assert connection.closed
    assert [each.reason_code for each in bench.heard()] == ([r.KEEP_ALIVE_TIMEOUT] if version == 5 else [])  # type: ignore[attr-defined]


def test_a_run_with_several_aliases() -> None:
    bench = Bench().connect()
    for topic, alias in (("a", 1), ("b", 2), ("", 1), ("", 2), ("c", None)):
        bench.send(Publish(topic, properties=Properties(topic_alias=alias)))
    data = b"".join(
        Publish(topic, properties=Properties(topic_alias=alias)).encode(5)
        for topic, alias in (("", 1), ("", 2), ("d", 1), ("", 1))
    )
    bench.connection.receive(data, 0.0)
    assert bench.served.calls[2:] == [
        f"publish {topic}" for topic in ["a", "b", "a", "b", "c", "a", "b", "d", "d"]
    ]


def test_what_is_left_of_a_run_waits_and_all_that_follows() -> None:
    bench = Bench().connect()
    bench.served.turn = 2
    bench.send(*[Publish(str(number)) for number in range(5)], PACKETS["subscribe"])
    connection = bench.connection
    assert (bench.served.calls[2:], connection.halted) == (["publish 0", "publish 1"], True)
    bench.send(PACKETS["ping"])
    assert connection.halted
    bench.send()
    assert bench.served.calls[2:] == [*(f"publish {number}" for number in range(5)), "subscribe"]
    assert (connection.published, connection.halted) == (5, False)


@pytest.mark.parametrize("size", range(1, 40))
def test_every_split_of_a_conversation(size: int) -> None:
    whole = Bench()
    data = b"".join(PACKETS[name].encode(5) for name in ("connect", "publish", "subscribe", "ping", "pubrel"))
    whole.connection.receive(data, 0.0)
    split = Bench()
    for at in range(0, len(data), size):
        split.connection.receive(data[at : at + size], 0.0)
    assert split.served.calls == whole.served.calls
    assert split.heard() == whole.heard()


# Packet identifiers.


FATES = {
    (1, SENT, PUBACK): Fate.ACCEPTED,
    (2, SENT, PUBREC): Fate.ACCEPTED,
    (2, RELEASED, PUBREC): Fate.REPEATED,
    (2, RELEASED, PUBCOMP): Fate.COMPLETED,
}


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBCOMP])
@pytest.mark.parametrize("stage", [SENT, RELEASED])
@pytest.mark.parametrize("qos", [1, 2])
def test_each_acknowledgement_in_each_stage(qos: int, stage: int, kind: int) -> None:
    flights: Flights[str] = Flights()
    flight = flights.take(qos, "x")
    flight.stage = stage
    expected = FATES.get((qos, stage, kind))
    if expected is None:
        with pytest.raises(ProtocolError):
            flights.acknowledge(kind, 1, 0)
        assert len(flights) == 1
        return
    assert flights.acknowledge(kind, 1, 0) == (expected, flight)
    assert len(flights) == (kind == PUBREC)


def test_identifiers_are_not_used_twice() -> None:
    flights: Flights[None] = Flights()
    first = flights.take(1, None)
    for _ in range(0xFFFF - 1):
        flights.take(1, None)
    flights.acknowledge(PUBACK, 77, 0)
    assert flights.take(2, None).packet_id == 77
    assert flights.drop(first.packet_id) is first
    assert flights.acknowledge(PUBACK, first.packet_id, 0) == (Fate.UNKNOWN, None)


def test_identifiers_come_round_past_a_message_that_is_not_acknowledged() -> None:
    flights: Flights[str] = Flights()
    flights.take(1, "passed")
    patient = [flights.take(1, "patient") for _ in range(3)]
    flights.acknowledge(PUBACK, 1, 0)
    for _ in range(0x1_0000 + 7):
        flight = flights.take(1, "quick")
        assert flight.packet_id not in (2, 3, 4)
        assert flights.acknowledge(PUBACK, flight.packet_id, 0) == (Fate.ACCEPTED, flight)
    assert [each.token for each in flights.by_id.values()] == ["patient"] * 3
    assert [flights.acknowledge(PUBACK, each.packet_id, 0)[1] for each in patient] == patient


def test_a_refused_message_frees_its_identifier() -> None:
    flights: Flights[None] = Flights()
    flights.take(2, None)
    fate, _ = flights.acknowledge(PUBREC, 1, r.UNSPECIFIED_ERROR)
    assert fate is Fate.REFUSED
    assert len(flights) == 0
