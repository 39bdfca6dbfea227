"""Retry failed messages with dead-lettering: after a pause, and set aside after the third attempt.

    errands ──rejected──> errands.pause ──expired after 50 ms──> errands ──third time──> errands.failed

Start a node with `leveret serve`, then run `python examples/04_retries.py`. AMQP_URL names another broker.
"""

import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
ATTEMPTS_MAX = 3
PAUSE_MS = 50

connection = pika.BlockingConnection(pika.URLParameters(URL))
channel = connection.channel()


def dead_letters_to(queue: str) -> dict[str, str | int]:
    """Return arguments that dead-letter through the default exchange, which routes to the queue named by the key."""
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


channel.queue_declare("errands", arguments=dead_letters_to("errands.pause"))
channel.queue_declare("errands.pause", arguments={**dead_letters_to("errands"), "x-message-ttl": PAUSE_MS})
channel.queue_declare("errands.failed")


def failures(properties: pika.BasicProperties) -> int:
    """Return how often the message was rejected from `errands`: the broker counts this in the header x-death."""
    deaths = (properties.headers or {}).get("x-death", [])
    return sum(d["count"] for d in deaths if (d["queue"], d["reason"]) == ("errands", "rejected"))


channel.basic_publish("", "errands", b"good")
channel.basic_publish("", "errands", b"bad")

for method, properties, body in channel.consume("errands"):
    attempt = failures(properties) + 1
    if body == b"good":
        print(f"{body.decode()}: done at attempt {attempt}")
        channel.basic_ack(method.delivery_tag)
    elif attempt < ATTEMPTS_MAX:
        print(f"{body.decode()}: attempt {attempt} failed, again in {PAUSE_MS} ms")
        channel.basic_reject(method.delivery_tag, requeue=False)
    else:
        print(f"{body.decode()}: attempt {attempt} failed, put aside")
        channel.basic_publish("", "errands.failed", body, properties)
        channel.basic_ack(method.delivery_tag)
        break

for queue in ("errands", "errands.pause", "errands.failed"):
    channel.queue_delete(queue)
connection.close()
