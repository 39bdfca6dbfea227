"""The page about bulk access tells the truth: its reader of blocks reads them, and its numbers are the code's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leveret.broker import Broker
from leveret.durable.store import block
from leveret.features.leases.lease import LEASES_MAX, READER_MAX, Lease
from leveret.features.leases.reservation import TAKING_S
from leveret.limits import QueueLimits
from leveret.message import Message
from leveret.protocols.http.bulk import bulk, leases, streams
from leveret.protocols.http.connection import Bounds
from leveret.protocols.http.server import memory_budget
from leveret.queues.work_queue import WorkQueue
from tests.durable.store.test_bloom import packed
from tests.harness.bench import ENCODING
from tests.http.stand import Stand
from tests.http.test_leases import LeaseStand

PAGE = (Path(__file__).parents[2] / "docs" / "bulk-access.md").read_text()
LEASE = Lease(WorkQueue(Broker().add_virtual_host("/"), "q", QueueLimits()), "r")


def reader_on_the_page() -> Callable[[bytes], Iterator[tuple[int, bytes]]]:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Callable[[bytes], Iterator[tuple[int, bytes]]]] = {}
    exec(program, names)  # type: ignore[arg-type]
    return names["bodies"]


def test_the_reader_on_the_page_reads_blocks_of_leases() -> None:
    """They have version 2, for they say when each message came into its queue."""
    stand = LeaseStand()
    stand.publish(b"a", b"bc", to="sw")
    stand.advance(1)
    stand.publish(b"d", to="sw")
    fence = stand.open()
    stand.state("POST", f"/sw/r/reserve?fence={fence}&from=0&messages=3")
    octets = stand.lease("GET", f"/sw/r/blocks?fence={fence}&from=0&until=3").body
    assert block.header(octets).flags & block.ARRIVALS
    assert list(reader_on_the_page()(octets)) == [(0, b"a"), (1, b"bc"), (2, b"d")]


def test_the_reader_on_the_page_reads_blocks_with_a_filter() -> None:
    octets = packed("x", "y", first=7)
    assert block.header(octets).flags & block.FILTER
    assert list(reader_on_the_page()(octets)) == [(7, b"7."), (8, b"8.")]


def test_the_reader_on_the_page_reads_blocks() -> None:
    stand = Stand()
    stand.publish(b"like", b"messages")
    stand.advance(1)  # another block
    for at, properties in enumerate((b"", b"p", b"properties")):
        stand.broker.publish(
            stand.host.exchange(""), Message(ENCODING, "", "s", properties, b"unlike %d" % at)
        )
    stand.broker.publish(stand.host.exchange("amq.fanout"), Message(ENCODING, "amq.fanout", "", b"", b"lost"))
    stand.host.bind(stand.host.exchange("amq.fanout"), stand.stream, "")
    stand.broker.publish(stand.host.exchange("amq.fanout"), Message(ENCODING, "amq.fanout", "", b"", b""))
    read = list(reader_on_the_page()(stand.blocks("from=0").body))
    assert read == list(enumerate([b"like", b"messages", b"unlike 0", b"unlike 1", b"unlike 2", b""]))


@pytest.mark.parametrize(
    "said",
    [
        f"up to {streams.OCTETS_MAX};",
        f"; {streams.OCTETS} unless said",
        f"up to {leases.MESSAGES_MAX}; {leases.MESSAGES} unless said",
        f"up to {leases.OCTETS_MAX}; {leases.OCTETS} unless said",
        f"after {TAKING_S:.0f} seconds what there is",
        f"has up to {READER_MAX} octets, and a virtual host up to {LEASES_MAX} leases",
        *(
            f'"{name}": '
            for name in leases.state(
                Lease(WorkQueue(Broker().add_virtual_host("/"), "q", QueueLimits()), "r")
            )
        ),
        f"up to {streams.WAIT_MS_MAX}.",
        f"no more than {memory_budget.ROOM_OCTETS >> 20} MiB",
        f"up to {bulk.ROOM_WAIT_S:.0f} seconds",
        f"up to {Bounds().behind_size_max >> 10} KiB",
        f"{Bounds().stall_size >> 10} KiB in {Bounds().stall_timeout_s:.0f} seconds",
        bulk.BLOCKS,
        bulk.ARROW,
        *(f"`{kind}`" for kind in streams.FORMATS),
        *(f"`{name}`" for name in streams.PARAMETERS),
    ],
)
def test_what_the_page_says_is_so(said: str) -> None:
    assert said in re.sub(r"\s+", " ", PAGE)
