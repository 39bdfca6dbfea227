"""The page about the format tells the truth: its example is what is written, and its tables name what there is."""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

from leveret import catalogue
from leveret.arguments.deduplication_settings import DeduplicationSettings
from leveret.broker import Broker
from leveret.catalogue import PARAMETER, PERMISSIONS, POLICY, TOPIC_PERMISSIONS, Kept, Named
from leveret.durable.store import block, chunk, database, records, typed_json
from leveret.durable.store.contract import Append, Entries
from leveret.durable.store.redo_policy import REDO_OCTETS
from leveret.features.deduplication import id_log
from leveret.features.deduplication.deduplication import RecentMessages
from leveret.features.kinds import KINDS
from leveret.features.leases import lease
from leveret.features.leases.lease import opened
from leveret.features.protocol_records.protocol_records import ProtocolRecord
from leveret.features.unsettled_maps.unsettled_map import UnsettledMap
from leveret.features.xa import prepared
from leveret.features.xa.branch import Branch
from leveret.features.xa.branches import Branches
from leveret.message import Facts, Message
from leveret.policy import Policy
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.security.users import Permissions, TopicPermissions, User
from leveret.selectors.bloom import filter_of
from tests.durable.store.shelf import Shelf, entries
from tests.features.xa.branching import xid

PAGE = (Path(__file__).parents[3] / "docs" / "store-format.md").read_text()
OCTETS = re.compile(r"(?:[0-9a-f]{2} +)*[0-9a-f]{2}(?=\s|$)")


def octets_in(block: str) -> bytes:
    """What stands on the left of a block's lines."""
    found = [OCTETS.match(line) for line in block.strip().splitlines()]
    return bytes.fromhex("".join(match[0] for match in found if match is not None))


def blocks() -> list[str]:
    return re.findall(r"^```\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_example_is_what_is_written() -> None:
    entries = Entries(7, arrived=1_700_000_000_000)
    entries.messages.append(Message(ENCODING, "", "hop", b"\x10\x00\x02", b"Hello!", Facts(durable=True)))
    for queue, position, expiry in ((1, 41, 0), (3, 0, 1_700_000_060_000)):
        entries.queues.append(queue)
        entries.positions.append(position)
        entries.priorities.append(0)
        entries.expiries.append(expiry)
        entries.records.append(0)
    packed = chunk.pack(entries)
    assert [octets_in(block) for block in blocks()[:2]] == [packed.entries, packed.messages]


def test_the_example_of_a_block_is_what_is_written() -> None:
    messages = [
        Message(ENCODING, "", "events", b"\x10\x00\x02", body, Facts(durable=True))
        for body in (b"Hello!", b"Bye")
    ]
    assert octets_in(blocks()[2]) == block.pack(Append(5, 0, 41, 1_700_000_000_000, messages))


def test_the_tables_of_the_databases_are_on_the_page() -> None:
    for statement in (sql for tables in database.SCHEMA.values() for sql in tables):
        table, columns = re.findall(r"TABLE (\w+) \((.*)\)", statement)[0]
        for name in (table, *(column.split()[0] for column in columns.split(", "))):
            assert f"`{name}`" in PAGE, f"{table}.{name}"
    assert all(f"0x{number:X}" in PAGE for number in database.IDS.values())
    assert f"the number of the format, which is {database.FORMAT}." in PAGE


def test_the_kinds_of_objects_and_of_values_are_on_the_page() -> None:
    for kind in (
        PARAMETER,
        catalogue.EXCHANGE,
        catalogue.QUEUE,
        catalogue.DEDUPLICATION,
        catalogue.LEASE,
        catalogue.STAGING,
        catalogue.BRANCH,
        catalogue.UNSETTLED_MAP,
        catalogue.PROTOCOL_RECORD,
        catalogue.BINDING,
        records.LAST_NUMBER,
        records.UNREADABLE,
    ):
        assert f'`"{kind}"`' in PAGE
    for sign in typed_json.READERS:
        assert f"`{sign}`" in PAGE


def test_what_leases_and_branches_note_is_on_the_page() -> None:
    for name in (lease.SETTLED, lease.POSITION, prepared.PREPARED, id_log.CLEARED, id_log.CONFIRMED):
        assert f"`{name}`" in PAGE


def test_the_fields_of_records_are_on_the_page() -> None:
    host = Broker().add_virtual_host("/")
    exchange, queue = (
        host.declare_exchange("e", "direct", durable=True),
        host.declare_queue("q", durable=True),
    )
    policy = Policy("p", "/", ".*", {"max-length": 1})
    kinds = {kind.name: kind for kind in KINDS}
    things: tuple[Kept, ...] = (
        exchange,
        queue,
        RecentMessages(host, exchange, DeduplicationSettings()),
        opened(queue, "r"),
        Branch(host.guest(Branches), xid("a"), "u").prepared,
        UnsettledMap(host, ("sender", "u", "c", "l"), {}),
        ProtocolRecord(host, ("p", "c", "n"), {}),
        host.bind(exchange, queue, "k"),
        Named((POLICY,), policy),
        User("u"),
        Named((PERMISSIONS,), Permissions("", "", "")),
        Named((TOPIC_PERMISSIONS,), TopicPermissions("", "")),
        host,
        Named((PARAMETER,), 1),
    )
    for record in (kinds[thing.stored_as[0]].record(thing) for thing in things):
        assert isinstance(record, dict)
        for field in record:
            assert f"`{field}`" in PAGE, field


def test_a_redo_log_is_read_by_the_tables_of_the_page(tmp_path: Path) -> None:
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    shelf.commit(chunks=[entries(1, b"x"), entries(2, b"y" * 600)], marks={1: 5})
    shelf.commit(settled={2: b"\1"}, dropped=[1])
    octets = (tmp_path / "data" / "messages.db-redo").read_bytes()
    tables = re.findall(
        r"^\| (\d+) \| (\d+) \| .*$",
        PAGE.partition("## messages.db-redo")[2].partition("## streams")[0],
        re.M,
    )
    fields = [(int(at), int(size)) for at, size in tables]
    header, head = fields[:5], fields[5:]

    def number(begin: int, field: tuple[int, int]) -> int:
        at, size = field
        return int.from_bytes(octets[begin + at : begin + at + size], "little")

    assert octets[: header[0][1]] == b"LvrRedo1"
    assert number(0, header[3]) == crc32(octets[: header[3][0]])
    found, begin = [], 512
    while begin < len(octets):
        assert octets[begin : begin + 4] == b"LvrR"
        size, chunks, dropped, bits, marks = (number(begin, head[place]) for place in (1, 4, 5, 6, 7))
        assert number(begin, head[2]) == number(0, header[2]), "the round"
        assert number(begin, head[9]) == crc32(octets[begin : begin + head[9][0]])
        at = begin + head[9][0] + head[9][1]
        numbers = [
            int.from_bytes(octets[place : place + 8], "little")
            for place in range(at, at + 8 * (dropped + 3 * chunks + 2 * bits + 2 * marks), 8)
        ]
        assert octets[begin + size - 12 : begin + size - 4] == octets[begin + 8 : begin + 16]
        found.append((chunks, dropped, bits, marks, numbers))
        begin = (begin + size + 511) // 512 * 512
    made = [chunk.pack(entries(1, b"x")), chunk.pack(entries(2, b"y" * 600))]
    sizes = [(each.first, len(each.entries), len(each.messages)) for each in made]
    assert found == [(2, 0, 0, 1, [*sizes[0], *sizes[1], 1, 5]), (0, 1, 1, 0, [1, 2, 1])]
    shelf.store.close(None)


def test_the_filter_of_a_block_is_found_by_the_words_of_the_page() -> None:
    """Worked out by hand, as another tool would."""
    digest = blake2b(b"emea", digest_size=16).digest()
    begin, step = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
    bits = filter_of(["emea"], 16)
    numbers = {(begin + number * step) % 128 for number in range(4)}
    assert {n for n in range(128) if bits[n // 8] >> n % 8 & 1} == numbers
