"""Query the broker itself: messages to an exchange of the type `system` are answered by its services.

Start a node with `leveret serve`, then run `python examples/22_services_of_the_broker.py`. AMQP_URL names another one.
"""

import json
import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
REPLY_TO = "amq.rabbitmq.reply-to"  # stands for this channel; an exclusive queue would do as well

with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
    channel = connection.channel()
    channel.exchange_declare("services", "system")
    channel.queue_declare("rabbits", exclusive=True)
    answers: dict[str, bytes] = {}

    def on_answer(_channel: object, _method: object, properties: pika.BasicProperties, body: bytes) -> None:
        answers[properties.correlation_id] = body

    channel.basic_consume(REPLY_TO, on_answer, auto_ack=True)
    for service, body in (("amq.ping", b"Hello, broker!"), ("amq.services", b""), ("amq.stats", b"")):
        asked = pika.BasicProperties(reply_to=REPLY_TO, correlation_id=service)
        channel.basic_publish("services", service, body, asked)
    while len(answers) < 3:
        connection.process_data_events(time_limit=None)
    channel.exchange_delete("services")

print("ping:", answers["amq.ping"].decode())
print("services:", *json.loads(answers["amq.services"]))
print("queues:", json.loads(answers["amq.stats"])["queues"])
