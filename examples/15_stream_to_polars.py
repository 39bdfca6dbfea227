"""Read a stream in bulk over HTTP as Arrow, into a table of Polars: the readings of each sensor.

Run `python examples/15_stream_to_polars.py`; nothing else has to run. It needs polars, and pyarrow on the node's side.
"""

import base64
import json
from contextlib import closing
from http.client import HTTPConnection

import pika
import polars

from leveret import ThreadedNode, embedded

STREAM = {"x-queue-type": "stream"}
LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


def publish(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("readings", durable=True, arguments=STREAM)
        for number in range(300):
            reading = {"sensor": "abc"[number % 3], "celsius": number % 7 + 0.5}
            channel.basic_publish("", "readings", json.dumps(reading).encode())


def answers(address: str):
    """Yield answers until the stream is read; each says where the next one begins."""
    offset = -1
    following = 0
    with closing(HTTPConnection(address)) as http:
        while following > offset:
            offset = following
            path = f"/api/leveret/streams/%2F/readings/blocks?from={offset}&format=arrow"
            http.request("GET", path, headers=LOGIN)
            answer = http.getresponse()
            following = int(answer.headers["Leveret-Next"])
            yield answer.read()


with ThreadedNode(embedded({"http": {"enabled": True, "address": "127.0.0.1:0"}})) as node:
    publish(node.url)
    table = polars.concat([polars.read_ipc_stream(octets) for octets in answers(node.node.addresses[-1])])

print(f"{table.height} messages, offsets {table['offset'].min()} to {table['offset'].max()}")
readings = (
    table["body"]
    .cast(polars.String)
    .str.json_decode(polars.Struct({"sensor": polars.String, "celsius": polars.Float64}))
)
means = readings.struct.unnest().group_by("sensor").agg(polars.col("celsius").mean()).sort("sensor")
for sensor, celsius in means.iter_rows():
    print(f"sensor {sensor}: {celsius:.2f} °C")
