"""Which protocols a listener serves: recognised by their first bytes, limited by the configuration."""

from __future__ import annotations

import pytest
import trio

from leveret import Node, embedded

pytestmark = pytest.mark.system

AMQP_091 = b"AMQP\x00\x00\x09\x01"
AMQP_10 = b"AMQP\x00\x01\x00\x00"
SASL_10 = b"AMQP\x03\x01\x00\x00"
NEWER_09 = b"AMQP\x00\x00\x09\x09"
AMQP_010 = b"AMQP\x01\x01\x00\x0a"
AMQP_08 = b"AMQP\x01\x01\x08\x00"
NEWER_10 = b"AMQP\x00\x01\x01\x00"
NONSENSE = b"MQTT\x00\x04...."

START = b"\x01\x00\x00"  # how connection.start begins: a method on channel 0

BOTH = {
    AMQP_091: START,
    SASL_10: SASL_10 + b"\x00\x00\x00",  # and a frame
    AMQP_10: AMQP_10,  # without SASL, as the anonymous user
    NEWER_09: AMQP_091,
    AMQP_08: AMQP_091,
    NEWER_10: SASL_10,
    AMQP_010: SASL_10,
    NONSENSE: SASL_10,
}
ONLY_091 = dict.fromkeys(BOTH, AMQP_091) | {AMQP_091: START}
ONLY_10 = dict.fromkeys(BOTH, SASL_10) | {SASL_10: BOTH[SASL_10], AMQP_10: AMQP_10}
START_010 = AMQP_010 + b"\x0f\x00"  # and a control
ALL = BOTH | {AMQP_010: START_010}
ONLY_010 = dict.fromkeys(BOTH, AMQP_010) | {AMQP_010: START_010}
WITHOUT_091 = {header: START_010 if header == AMQP_010 else AMQP_010 for header in BOTH} | {
    SASL_10: BOTH[SASL_10],
    AMQP_10: AMQP_10,
    NEWER_10: SASL_10,
}
ENABLED = {"protocols": {"amqp010": {"enabled": True}}}


def listening(*protocols: str) -> dict[str, object]:
    return {"listeners": [{"address": "127.0.0.1:0", "protocols": list(protocols)}]}


@pytest.mark.parametrize(
    ("source", "answers"),
    [
        ({}, BOTH),
        (listening("amqp091", "amqp10"), BOTH),
        (listening("amqp10", "amqp091"), BOTH),
        (listening("amqp091"), ONLY_091),
        (listening("amqp10"), ONLY_10),
        (ENABLED, ALL),
        (ENABLED | listening("amqp010"), ONLY_010),
        (ENABLED | listening("amqp010", "amqp091", "amqp10"), ALL),
        (ENABLED | listening("amqp010", "amqp10"), WITHOUT_091),
        ({"protocols": {"amqp10": {"enabled": False}}}, ONLY_091),
        ({"protocols": {"amqp091": {"enabled": False}}}, ONLY_10),
    ],
)
def test_s002_s003_first_bytes_tell_the_protocol(source: dict[str, object], answers: dict[bytes, bytes]):
    """What is not served is answered with a header that is, and the end."""

    async def main() -> None:
        async with Node(embedded(source)) as node:
            for header, answer in answers.items():
                if answer in (AMQP_091, SASL_10, AMQP_010):
                    assert await last_words(node, header) == answer, header
                else:
                    assert (await answer_to(node, header)).startswith(answer), header

    trio.run(main)


def test_two_listeners_with_a_protocol_each() -> None:
    async def main() -> None:
        config = embedded({"listeners": [listening(name)["listeners"][0] for name in ("amqp091", "amqp10")]})
        async with Node(config) as node:
            assert [each.entrance.names for each in node.listening] == [("amqp091",), ("amqp10",)]
            assert (await answer_to(node, AMQP_091, 0)).startswith(START)
            assert await last_words(node, AMQP_091, 1) == SASL_10
            assert (await answer_to(node, SASL_10, 1)).startswith(BOTH[SASL_10])
            assert await last_words(node, SASL_10, 0) == AMQP_091

    trio.run(main)


def test_the_first_bytes_of_1_0_may_come_one_by_one() -> None:
    async def main() -> None:
        async with Node(embedded()) as node, await connected(node) as stream:
            for at in range(len(SASL_10)):
                await stream.send_all(SASL_10[at : at + 1])
                await node.quiet()
            assert (await stream.receive_some(1000)).startswith(SASL_10)

    trio.run(main)


async def connected(node: Node, listener: int = 0) -> trio.SocketStream:
    host, port = node.addresses[listener].split(":")
    return await trio.open_tcp_stream(host, int(port))


async def answer_to(node: Node, header: bytes, listener: int = 0) -> bytes:
    """What the node answers to a header, and goes on listening."""
    async with await connected(node, listener) as stream:
        await stream.send_all(header)
        await node.quiet()
        return bytes(await stream.receive_some(65536))


async def last_words(node: Node, header: bytes, listener: int = 0) -> bytes:
    """What the node answers to a header, and hangs up."""
    with trio.fail_after(60):
        async with await connected(node, listener) as stream:
            await stream.send_all(header)
            return b"".join([chunk async for chunk in stream])
