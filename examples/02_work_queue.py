"""A work queue: jobs are confirmed by the broker, shared by two workers, and acknowledged when they are done.

Start a node with `leveret serve`, then run `python examples/02_work_queue.py`. AMQP_URL names another broker.
"""

import os
import threading

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
JOBS = 10
STOP = b"stop"


def work(name: str, done: list[str]) -> None:
    """Take one job at a time until told to stop. A worker that dies leaves its job to the others."""
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True)
        channel.basic_qos(prefetch_count=1)
        for method, _, body in channel.consume("jobs"):
            if body != STOP:
                done.append(f"{name} did {body.decode()}")
            channel.basic_ack(method.delivery_tag)
            if body == STOP:
                break


def publish(jobs: list[bytes]) -> None:
    """Publish the jobs, and return when the broker has confirmed all of them; raises if it could not."""
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True)
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        for job in jobs:
            channel.basic_publish("", "jobs", job, persistent, mandatory=True)


def main() -> None:
    done: list[str] = []
    workers = [threading.Thread(target=work, args=(name, done)) for name in ("Ann", "Bob")]
    for worker in workers:
        worker.start()
    publish([f"job {number}".encode() for number in range(JOBS)] + [STOP] * len(workers))
    for worker in workers:
        worker.join()
    print(*sorted(done), f"{len(done)} jobs done", sep="\n")


main()
