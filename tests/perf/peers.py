"""A broker of one queue that is as right or wrong as a test wants it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method

ANSWERS: dict[type[Method], Method] = {
    m.ConnectionStartOk: m.ConnectionTune(2047, 131072, 0),
    m.ConnectionOpen: m.ConnectionOpenOk(),
    m.ConnectionClose: m.ConnectionCloseOk(),
    m.ChannelOpen: m.ChannelOpenOk(),
    m.ConfirmSelect: m.ConfirmSelectOk(),
    m.BasicQos: m.BasicQosOk(),
}
# from the bodies published so far to those to be delivered now
Deliver = Callable[[list[bytes]], list[bytes]]


class FakeBroker:
    """One queue, to which everything goes and which delivers what a function makes of it; confirms what it gets."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._consumer: socket.socket | None = None
        self._delivered = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = [self._listener]
        self.url = f"amqp://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(accepted)
            threading.Thread(target=self._serve_one, args=(accepted,), daemon=True).start()

    def _serve_one(self, client: socket.socket) -> None:
        try:
            client.recv(8, socket.MSG_WAITALL)
            client.sendall(wire.method_frame(0, m.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US").encode()))
            tag = 0
            while True:
                kind, channel, payload = frame_of(client)
                if kind == m.FRAME_BODY:
                    tag += 1
                    client.sendall(wire.method_frame(channel, m.BasicAck(tag).encode()))
                    self._hand_on([payload])
                elif kind == m.FRAME_METHOD:
                    self._answer(client, channel, wire.method_at(payload, 0, len(payload)))
        except OSError:
            pass

    def _answer(self, client: socket.socket, channel: int, method: Method) -> None:
        answer = ANSWERS.get(type(method))
        if isinstance(method, m.BasicConsume):
            self._consumer = client
            answer = m.BasicConsumeOk(method.consumer_tag)
        if answer is not None:
            client.sendall(wire.method_frame(channel, answer.encode()))

    def _hand_on(self, bodies: list[bytes]) -> None:
        with self._lock:
            out: list[bytes] = []
            for body in self._deliver(bodies):
                self._delivered += 1
                method = m.BasicDeliver("perf-00001", self._delivered, False, "", "perf-0").encode()
                wire.append_content(out, 1, method, BasicProperties(delivery_mode=1).encode(), body, 131072)
            if out and self._consumer is not None:
                self._consumer.sendall(b"".join(out))

    def close(self) -> None:
        for each in self._open:
            each.close()


def frame_of(client: socket.socket) -> tuple[int, int, bytes]:
    head = client.recv(7, socket.MSG_WAITALL)
    if len(head) < 7:
        raise OSError("gone")
    kind, channel, size = wire.FRAME_START.unpack(head)
    return kind, channel, client.recv(size + 1, socket.MSG_WAITALL)[:-1]


@contextmanager
def fake_broker(deliver: Deliver) -> Iterator[FakeBroker]:
    made = FakeBroker(deliver)
    threading.Thread(target=made.serve, daemon=True).start()
    try:
        yield made
    finally:
        made.close()
