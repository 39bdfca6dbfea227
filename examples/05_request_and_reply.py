"""Send a request and receive its reply without a reply queue: direct reply-to.

Start a node with `leveret serve`, then run `python examples/05_request_and_reply.py`. AMQP_URL names another broker.
"""

import os
import threading

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
REPLY_TO = "amq.rabbitmq.reply-to"  # stands for this channel


def serve(listening: threading.Event, questions: int) -> None:
    """Answer this many questions, each at the address that it names."""
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare("squares", auto_delete=True)
        listening.set()
        for method, properties, body in channel.consume("squares"):
            answer = str(int(body) ** 2).encode()
            same = pika.BasicProperties(correlation_id=properties.correlation_id)
            channel.basic_publish("", properties.reply_to, answer, same)
            channel.basic_ack(method.delivery_tag)
            if method.delivery_tag == questions:
                break


def ask(questions: list[int]) -> None:
    answers: list[str] = []
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()

        def on_answer(
            _channel: object, _method: object, properties: pika.BasicProperties, body: bytes
        ) -> None:
            answers.append(f"{properties.correlation_id} squared is {body.decode()}")

        # on the channel that sends the requests, and before it does
        channel.basic_consume(REPLY_TO, on_answer, auto_ack=True)
        for question in questions:
            asked = pika.BasicProperties(reply_to=REPLY_TO, correlation_id=str(question))
            channel.basic_publish("", "squares", str(question).encode(), asked)
        while len(answers) < len(questions):
            connection.process_data_events(time_limit=None)
    print(*answers, sep="\n")


listening = threading.Event()
server = threading.Thread(target=serve, args=(listening, 3))
server.start()
listening.wait()
ask([2, 3, 12])
server.join()
