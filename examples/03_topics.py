"""Route messages by topic, and catch those without a subscriber with an alternate exchange.

Start a node with `leveret serve`, then run `python examples/03_topics.py`. AMQP_URL names another broker.
"""

import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")

with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
    channel = connection.channel()
    channel.exchange_declare("unheard", "fanout")
    channel.exchange_declare("weather", "topic", arguments={"alternate-exchange": "unheard"})

    # "*" stands for one word, "#" for any number of them
    for queue, exchange, key in (
        ("sailors", "weather", "sea.*.wind"),
        ("archive", "weather", "sea.#"),
        ("leftovers", "unheard", ""),
    ):
        channel.queue_declare(queue, exclusive=True)
        channel.queue_bind(queue, exchange, key)

    for key in ("sea.north.wind", "sea.north.rain", "moon.north.wind"):
        channel.basic_publish("weather", key, f"news of {key}".encode())

    for queue in ("sailors", "archive", "leftovers"):
        while (received := channel.basic_get(queue, auto_ack=True))[0] is not None:
            print(f"{queue}: {received[2].decode()}")
