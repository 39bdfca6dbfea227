"""Analyse dead letters: orders that expired, were rejected, or had no room; as a table and a picture.

    pika ──> queue "orders" ──died: expired, rejected, maxlen──> exchange "dead" ──> stream "dead" ──> Spark

The same from the command line: `leveret pipeline dead-letters dead --picture dead.svg`.

Run `python examples/20_dead_letters.py`; nothing else has to run. It needs `pip install 'leveret[spark,charts]'`, pika
and Java.
"""

import random
import tempfile
import time
from pathlib import Path

import pika

from leveret import ThreadedNode, embedded
from leveret.pipeline.jobs.dead_letters import by_kind, collected, counted, deaths
from leveret.pipeline.jobs.endpoint import BrokerEndpoint
from leveret.pipeline.jobs.picture import draw
from leveret.pipeline.session import session

STREAM = {"x-queue-type": "stream"}
COUNTRIES = ("fi", "pt", "ie")


def declare(channel) -> None:
    """Declare queues whose dead letters go to one stream, which keeps them for analysis."""
    channel.exchange_declare("dead", "fanout", durable=True)
    channel.queue_declare("dead", durable=True, arguments=STREAM)
    channel.queue_bind("dead", "dead")
    channel.exchange_declare("orders", "topic")
    for queue, key, more in (("parcels", "*.large", {"x-max-length": 40}), ("letters", "*.small", {})):
        channel.queue_declare(queue, arguments={"x-dead-letter-exchange": "dead", **more})
        channel.queue_bind(queue, "orders", key)


def bad_day(channel, chance: random.Random) -> None:
    """Send 45 parcels for 40 places, of which ten are rejected, and 15 letters that expire."""
    for number in range(60):
        size = "small" if number % 4 == 0 else "large"
        patience = "1" if size == "small" else None
        key = f"{chance.choice(COUNTRIES)}.{size}"
        channel.basic_publish("orders", key, b"%d" % number, pika.BasicProperties(expiration=patience))
    time.sleep(0.05)
    for _ in range(10):
        method, _, _ = channel.basic_get("parcels")
        channel.basic_reject(method.delivery_tag, requeue=False)
    for queue in ("parcels", "letters"):  # expired messages leave when the queue is read
        channel.queue_declare(queue, passive=True)


with (
    tempfile.TemporaryDirectory() as folder,
    ThreadedNode(embedded({"http": {"enabled": True, "address": "127.0.0.1:0"}})) as node,
    pika.BlockingConnection(pika.URLParameters(node.url)) as connection,
):
    channel = connection.channel()
    channel.confirm_delivery()
    declare(channel)
    bad_day(channel, random.Random(20))

    spark = session("dead letters")
    reading = BrokerEndpoint(f"http://{node.node.addresses[-1]}").reading(["dead"])
    died = deaths(spark.read.format("amqp").options(**reading).load())
    died.groupBy("queue", "reason").count().orderBy("queue", "reason").show()

    counts = collected(counted(died, "day").collect())
    draw(counts, "day", Path(folder) / "dead.svg")
    print(f"{sum(each.messages for each in counts)} orders died; of parcels for Finland:")
    for queue, reason, _, key, messages in by_kind(counts):
        if key == "fi.large":
            print(f"{messages} {reason} in queue {queue}")
