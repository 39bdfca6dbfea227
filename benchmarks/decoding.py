"""Measure what decoding bodies costs on the way to a Delta table: blocks of a stream to data files, with and without.

    python -m benchmarks.decoding 300000

One process, no broker: blocks are in memory, as they come from one, and files go to a temporary folder.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from leveret.durable.store.block import pack
from leveret.durable.store.contract import Append
from leveret.message import Facts, Message
from leveret.pipeline.arrow import Batch
from leveret.pipeline.decode import Decoder
from leveret.pipeline.decoding.decode_options import DecodeOptions
from leveret.pipeline.jobs.archive_columns import COLUMNS
from leveret.pipeline.jobs.data_files import Layout
from leveret.pipeline.jobs.decoding import Decoding
from leveret.pipeline.jobs.delta_paired_table import DeltaPairedTable
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.wire import BasicProperties

BLOCK = 1000  # messages
READ = pa.schema(list(COLUMNS.items()))
FIELDS = {"id": "long", "shop": "string", "price": "double", "paid": "boolean", "at": "string"}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}
DDL = "id bigint, shop string, price double, paid boolean, at string"
PROTOBUF = {"long": 3, "string": 9, "double": 1, "boolean": 8}  # `FieldDescriptorProto.TYPE_*`


def order(number: int) -> dict[str, object]:
    at = f"2026-11-29T08:{number // 60 % 60:02}:{number % 60:02}Z"
    return {
        "id": number,
        "shop": f"shop-{number % 50}",
        "price": number % 1000 / 4,
        "paid": number % 3 > 0,
        "at": at,
    }


def blocks(count: int, encoded: Callable[[dict[str, object]], bytes]) -> list[bytes]:
    properties = BasicProperties(content_type="application/json").encode()
    found = []
    for first in range(0, count, BLOCK):
        messages = [
            Message(ENCODING, "", "orders", properties, encoded(order(first + each)), Facts(durable=True))
            for each in range(BLOCK)
        ]
        found.append(pack(Append(1, first, first, 1_795_337_881_497 + first, messages)))
    return found


def rows(stored: list[bytes]) -> Iterator[Batch]:
    decoder = Decoder(READ, "amqp", "orders", 0)
    for number, octets in enumerate(stored):
        for batch, _, _ in decoder.batches(octets, number * BLOCK, (number + 1) * BLOCK):
            if batch is not None:
                yield batch


def with_json(folder: Path) -> tuple[Callable[[dict[str, object]], bytes], DecodeOptions]:
    (folder / "order.ddl").write_text(DDL)
    return lambda value: json.dumps(value).encode(), DecodeOptions("json", str(folder / "order.ddl"))


def with_avro(folder: Path) -> tuple[Callable[[dict[str, object]], bytes], DecodeOptions]:
    import fastavro

    (folder / "order.avsc").write_text(json.dumps(AVRO))
    parsed = fastavro.parse_schema(AVRO)

    def encoded(value: dict[str, object]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        return stream.getvalue()

    return encoded, DecodeOptions("avro", str(folder / "order.avsc"))


def with_protobuf(folder: Path) -> tuple[Callable[[dict[str, object]], bytes], DecodeOptions]:
    from google.protobuf import message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(FIELDS.items(), 1):
        message.field.add(name=name, number=number, type=PROTOBUF[kind], label=1)
    (folder / "order.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    return lambda value: made(**value).SerializeToString(), DecodeOptions(
        "protobuf", str(folder / "order.desc")
    )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    for name, prepare in {"json": with_json, "avro": with_avro, "protobuf": with_protobuf}.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            encoded, options = prepare(folder)
            stored = blocks(count, encoded)
            layout = Layout(str(folder / "lake"), ("day",), READ)
            archive = DeltaPairedTable(layout.where)
            decoding = partial(Decoding, archive, layout, READ, options)
            decoding().write(rows(stored[:10]), "first")  # loads what is needed
            for how, write in {
                "body": lambda: layout.write(rows(stored), "plain"),  # noqa: B023 - called at once
                "body and columns": lambda: decoding().write(rows(stored), "decoded"),  # noqa: B023
            }.items():
                began, busy = time.perf_counter(), time.process_time()
                write()
                wall, cpu = time.perf_counter() - began, time.process_time() - busy
                print(
                    f"{name}, {how}: {count / wall:,.0f} rows/s, {cpu / count * 1e6:.2f} µs of the processor a row"
                )


if __name__ == "__main__":
    main()
