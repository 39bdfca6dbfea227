"""Archive orders in a Delta table, each exactly once; measure how far the archive is behind; and replay some of them.

    pika ──> stream "orders" ──archive──> Delta table ──replay──> exchange "rehearsal" ──> queue "till"

The same from the command line: `leveret pipeline archive`, `lag` and `replay`.

Run `python examples/18_archive_and_replay.py`; nothing else has to run. It needs `pip install 'leveret[spark,delta]'`,
pika and Java.
"""

import json
import random
import tempfile
from pathlib import Path

import pika

from leveret import ThreadedNode, embedded
from leveret.pipeline.jobs.archive import Target, archive, checkpoint_of
from leveret.pipeline.jobs.endpoint import BrokerEndpoint
from leveret.pipeline.jobs.lag import measure
from leveret.pipeline.jobs.replay import ReplayRequest
from leveret.pipeline.jobs.replay_batches import Pace, replay
from leveret.pipeline.jobs.table import table
from leveret.pipeline.session import session

STREAM = {"x-queue-type": "stream"}
ARTICLES = {"carrot": 0.2, "turnip": 0.8, "clover": 0.05}
COUNTRIES = ("FI", "PT", "IE")


def declare(channel) -> None:
    channel.queue_declare("orders", durable=True, arguments=STREAM)
    channel.exchange_declare("rehearsal", "topic")
    channel.queue_declare("till")
    channel.queue_bind("till", "rehearsal", "#")


def order(channel, chance: random.Random, begin: int, end: int) -> None:
    for number in range(begin, end):
        article = chance.choice(list(ARTICLES))
        pieces = round(chance.lognormvariate(2, 0.8)) + 1
        total = round(pieces * ARTICLES[article], 2)
        body = {"number": number, "article": article, "pieces": pieces, "total": total}
        headers = {"country": chance.choice(COUNTRIES)}
        channel.basic_publish("", "orders", json.dumps(body).encode(), pika.BasicProperties(headers=headers))


def archive_what_is_there(spark, reach: BrokerEndpoint, lake: Path) -> None:
    """Archive new orders. The checkpoint beside the archive records how far the last run came."""
    reading = reach.reading(["orders"], {"startingOffsets": "earliest"})
    rows = spark.readStream.format("amqp").options(**reading).load()
    archive(rows, Target(str(lake), by=("day",))).awaitTermination()
    print(f"{table(spark, str(lake)).count()} orders in the lake")


def show_lag(reach: BrokerEndpoint, lake: Path) -> None:
    """Print how far the archive is behind, from the checkpoint and the broker's answer, without Spark."""
    for lag in measure([Path(checkpoint_of(str(lake)))], reach):
        print(f"{lag.source}: at {lag.position} of {lag.end}, {lag.behind} behind")


def taken(channel, queue: str) -> list[dict]:
    """Return all messages of a queue."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(json.loads(got[2]))
    return found


with (
    tempfile.TemporaryDirectory() as folder,
    ThreadedNode(embedded({"http": {"enabled": True, "address": "127.0.0.1:0"}})) as node,
    pika.BlockingConnection(pika.URLParameters(node.url)) as connection,
):
    channel = connection.channel()
    channel.confirm_delivery()
    declare(channel)
    chance = random.Random(18)
    spark = session("orders")
    reach = BrokerEndpoint(f"http://{node.node.addresses[-1]}")
    lake = Path(folder) / "lake"

    order(channel, chance, 0, 200)
    archive_what_is_there(spark, reach, lake)
    order(channel, chance, 200, 250)
    show_lag(reach, lake)
    archive_what_is_there(spark, reach, lake)
    show_lag(reach, lake)

    finnish = ReplayRequest(str(lake), "rehearsal", where="headers['country'] = 'FI'")
    replay(spark, finnish, reach.options, pace=Pace(500))  # messages a second
    orders = taken(channel, "till")
    numbers = [each["number"] for each in orders]
    print(f"{len(orders)} orders from Finland, in the order they came: {numbers == sorted(set(numbers))}")
