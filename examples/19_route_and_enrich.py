"""Enrich readings of sensors with a table of the sensors, and publish them; alarms have their own routing keys.

    pika ──> stream "readings" ──> Spark: join, decide ──> exchange "plant" ──> queues "alarms", "hall-1", "hall-2"

The same from the command line, as this file is a module with a function: `leveret pipeline route readings --to-exchange
plant --function my_module:completed --checkpoint /var/lib/plant`.

Run `python examples/19_route_and_enrich.py`; nothing else has to run. It needs `pip install 'leveret[spark]'`, pika and
Java.
"""

import json
import random
import tempfile

import pika

from leveret import ThreadedNode, embedded
from leveret.pipeline.jobs.endpoint import BrokerEndpoint
from leveret.pipeline.jobs.route import route, routed
from leveret.pipeline.session import session

STREAM = {"x-queue-type": "stream"}
SENSORS = [("a1", "hall-1", 60.0), ("a2", "hall-1", 80.0), ("b1", "hall-2", 60.0)]
QUEUES = {"alarms": "alarm.*", "hall-1": "*.hall-1", "hall-2": "*.hall-2"}


def declare(channel) -> None:
    channel.queue_declare("readings", durable=True, arguments=STREAM)
    channel.exchange_declare("plant", "topic")
    for queue, key in QUEUES.items():
        channel.queue_declare(queue)
        channel.queue_bind(queue, "plant", key)


def measure(channel, chance: random.Random, count: int) -> None:
    for _ in range(count):
        reading = {"sensor": chance.choice(SENSORS)[0], "celsius": round(chance.gauss(55, 10), 1)}
        channel.basic_publish("", "readings", json.dumps(reading).encode())


def completed(messages):
    """Turn a DataFrame with the source's columns into one with the sink's."""
    known = messages.sparkSession.createDataFrame(SENSORS, "sensor string, hall string, hottest double")
    readings = messages.selectExpr("from_json(cast(body as string), 'sensor string, celsius double') as said")
    return (
        readings.select("said.*")
        .join(known, "sensor")
        .selectExpr(
            "to_json(struct(sensor, hall, celsius, hottest)) as body",
            "concat(if(celsius > hottest, 'alarm.', 'normal.'), hall) as routing_key",
        )
    )


def route_what_is_there(spark, reach: BrokerEndpoint, checkpoint: str) -> None:
    reading = reach.reading(["readings"], {"startingOffsets": "earliest"})
    rows = spark.readStream.format("amqp").options(**reading).load()
    sink = {**reach.options, "exchange": "plant"}
    route(routed(rows, completed), sink, checkpoint).awaitTermination()


with (
    tempfile.TemporaryDirectory() as checkpoint,
    ThreadedNode(embedded({"http": {"enabled": True, "address": "127.0.0.1:0"}})) as node,
    pika.BlockingConnection(pika.URLParameters(node.url)) as connection,
):
    channel = connection.channel()
    channel.confirm_delivery()
    declare(channel)
    chance = random.Random(19)
    spark = session("plant")
    reach = BrokerEndpoint(f"http://{node.node.addresses[-1]}")
    for _ in range(2):
        measure(channel, chance, 100)
        route_what_is_there(spark, reach, checkpoint)
        for queue in QUEUES:
            count = channel.queue_declare(queue, passive=True).method.message_count
            print(f"{queue}: {count} messages")
