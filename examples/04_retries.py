"""Dead letters: a job that fails is tried again after a pause, and put aside after the third attempt.

    jobs ──rejected──> jobs.pause ──expired after 50 ms──> jobs ──third time──> jobs.failed

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
    """Through the default exchange, which leads to the queue that the key names."""
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


channel.queue_declare("jobs", arguments=dead_letters_to("jobs.pause"))
channel.queue_declare("jobs.pause", arguments={**dead_letters_to("jobs"), "x-message-ttl": PAUSE_MS})
channel.queue_declare("jobs.failed")


def failures(properties: pika.BasicProperties) -> int:
    """How often the message was rejected from `jobs`: the broker keeps count in the header x-death."""
    deaths = (properties.headers or {}).get("x-death", [])
    return sum(d["count"] for d in deaths if (d["queue"], d["reason"]) == ("jobs", "rejected"))


channel.basic_publish("", "jobs", b"good")
channel.basic_publish("", "jobs", b"bad")

for method, properties, body in channel.consume("jobs"):
    attempt = failures(properties) + 1
    if body == b"good":
        print(f"{body.decode()}: done at attempt {attempt}")
        channel.basic_ack(method.delivery_tag)
    elif attempt < ATTEMPTS_MAX:
        print(f"{body.decode()}: attempt {attempt} failed, again in {PAUSE_MS} ms")
        channel.basic_reject(method.delivery_tag, requeue=False)
    else:
        print(f"{body.decode()}: attempt {attempt} failed, put aside")
        channel.basic_publish("", "jobs.failed", body, properties)
        channel.basic_ack(method.delivery_tag)
        break

for queue in ("jobs", "jobs.pause", "jobs.failed"):
    channel.queue_delete(queue)
connection.close()
