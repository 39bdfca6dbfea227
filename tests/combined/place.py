"""A run: a broker with a store in memory, its queues, and those who use them, all decided by a seed."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final

from leveret.delivery import Delivery
from leveret.policy import Policy
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec import methods as m
from leveret.queues import absent
from leveret.queues.work_queue import WorkQueue
from leveret.values import Table
from tests.amqp091.peer import Content
from tests.amqp091.peer import Peer as Peer091
from tests.harness.bench import StoredBench

from .client import Client
from .client010 import Client010
from .client091 import Client091
from .client10 import Client10
from .client_mqtt import ClientMqtt
from .ledger import BODY, Ledger
from .operator import DEAD, Operator

CLIENTS: Final[Mapping[type[Client], int]] = {
    Client091: 6,
    Client10: 4,
    Client010: 4,
    ClientMqtt: 4,
}  # weights
CLIENTS_MAX: Final = 4
QUEUES: Final = 4
# Each queue has up to four of these, and dead letters go to a queue that takes all.
ARGUMENTS: Final[tuple[Table, ...]] = (
    {"x-max-length": 5},
    {"x-max-length": 5, "x-overflow": "reject-publish"},
    {"x-max-length": 3, "x-overflow": "reject-publish-dlx"},
    {"x-max-length": 6, "x-overflow": "producer-flow-control", "x-flow-resume-percent": 50},
    {"x-max-length-bytes": 60},
    {"x-message-ttl": 1000},
    {"x-single-active-consumer": True},
    {"x-consumer-timeout": 2000},
    {"x-max-priority": 10},
    {"x-max-priority": 5, "x-fair-share": 2},
    {"x-max-priority": 10, "x-priority-base": 4},
    {"x-queue-type": "quorum"},
    {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
    {"x-delivery-limit": 1},
    {"x-delayed-message": True},
    {"x-delayed-retry-type": "all", "x-delayed-retry-min": 300},
    {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 200, "x-delayed-retry-max": 900},
    {"x-message-group-key": "group"},  # twice: what it meets is rarer
    {"x-message-group-key": "group"},
    {"x-last-value-key": "value"},
    {"x-sequence-header": "number"},
    {"x-message-deduplication": True},
    {"x-alternate-exchange": "rest"},
    {
        "x-slow-consumer-threshold": 60,
        "x-slow-consumer-policy": "close",
        "x-slow-consumer-check-period": 1000,
    },
)
DEAD_LETTERS: Final[Table] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
POLICIES: Final[tuple[Table, ...]] = (
    {"max-length": 3},
    {"max-length": 4, "overflow": "reject-publish"},
    {"max-length-bytes": 40},
    {"message-ttl": 700},
    {"delivery-limit": 1},
    {"consumer-timeout": 1500},
)
# A client is told of what is taken from it: what it answers late would be settled in its own books only.
RESPONSES: Final = ("close-channel", "notify-consumer")
DELETING: Final = (
    0.25  # the share of a run in which queues are deleted and purged: what came before may be gone
)
DUE_S: Final = 70.0  # until everything delayed is ready, and branches that nobody prepared are undone


class Place:
    """See the top of the module. `run` raises AssertionError where something is lost, doubled or miscounted."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger = Ledger()
        self.queues = tuple(f"q{number}" for number in range(QUEUES))
        self._names = 0
        self._toml = f'[compat]\nconsumer_timeout_response = "{self.random.choice(RESPONSES)}"\n'
        self._open(StoredBench(self._toml))
        self._do(m.ExchangeDeclare("direct", "direct", durable=True))
        self._do(m.ExchangeDeclare("rest", "fanout", durable=True))
        self._do(m.QueueDeclare(DEAD, durable=True))
        self._do(m.QueueBind(DEAD, "rest"))
        for queue in self.queues:
            self._declare(queue)

    def _open(self, bench: StoredBench) -> None:
        self.bench = bench
        bench.broker.encodings = {ENCODING.name: lambda: ENCODING}  # of what is published over HTTP
        self.clients: list[Client] = []
        self._admin = Peer091(bench).open().channel()
        self.operator = Operator(self)

    # What clients ask for.

    def name(self, kind: str) -> str:
        """Return a name that nothing else has."""
        self._names += 1
        return f"{kind} {self._names}"

    def queue(self) -> str:
        return self.random.choice(self.queues)

    def publishing(self, queue: str | None = None) -> tuple[str, bytes]:
        """Return a queue, or this one, and the body of a message to it."""
        chosen = queue or self.queue()
        body = self.ledger.new(chosen)
        if self.replaces(chosen):
            self.ledger.excuse([body])
        return chosen, body

    def replaces(self, queue: str) -> bool:
        """Return whether a queue drops waiting messages that are replaced."""
        return "x-last-value-key" in self.bench.queue(queue).arguments

    def body_of(self, shown: Mapping[str, Any]) -> bytes:
        """Return the body of a message as the HTTP API shows it, with its sections if it is one of AMQP 1.0."""
        return b64decode(shown["payload"])[-BODY:]

    # What happens.

    def run(self, steps: int) -> None:
        for step in range(steps):
            self._step(step < steps * DELETING)
            self._hear()
            for queue in self.bench.host.queues.values():
                assert min(queue.ready, queue.unsettled, queue.ready_bytes, queue.unsettled_bytes) >= 0, (
                    queue.name
                )
        self._close()

    def _step(self, may_delete: bool) -> None:
        moves: dict[Callable[[], None], float] = {
            self._client: 80,
            self.operator.step: 14,
            self._page_out: 5,
            self._pass_time: 3,
            self._change_policy: 2,
            self._lose: 2,
            self._redeclare: 0.5 * may_delete,
            self._purge: 0.3 * may_delete,
            self._restart: 0.3,
        }
        [move] = self.random.choices([*moves], [*moves.values()])
        move()

    def _client(self) -> None:
        if len(self.clients) < CLIENTS_MAX and self.random.random() < 0.3:
            [kind] = self.random.choices([*CLIENTS], [*CLIENTS.values()])
            self.clients.append(kind(self))
        elif self.clients:
            self.random.choice(self.clients).step()

    def _hear(self) -> None:
        for client in self.clients:
            if not client.is_over:
                client.hear()
        for client in [each for each in self.clients if each.is_over]:
            self.clients.remove(client)
            client.leave()

    def _lose(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            self.clients.remove(client)
            client.leave()

    def _pass_time(self) -> None:
        self.bench.advance(self.random.choice((0.1, 0.6, 1.5, 5)))

    def _page_out(self) -> None:
        """Keep messages on disk only: waiting ones, and at times those that consumers have."""
        takes_unsettled = self.random.random() < 0.4
        for queue in self.bench.host.queues.values():
            if not isinstance(queue, WorkQueue):
                continue
            if self.random.random() < 0.6:
                queue.page_out(self.random.choice((0, 1, 3)))
            for consumer in [*queue.consumers] if takes_unsettled else ():
                held = [each for each in consumer.unanswered().values() if isinstance(each, Delivery)]
                absent.put_away(queue, [each for each in held if each.queue is queue])
        self.bench.settle()

    def _change_policy(self) -> None:
        policies = self.bench.broker.policies
        if self.random.random() < 0.2:
            policies.clear("/", "changing")
        else:
            policies.set(Policy("changing", "/", "^q[0-2]$", self.random.choice(POLICIES), 0))
        self.bench.host.apply_policies()
        self.bench.settle()

    def _redeclare(self) -> None:
        """Delete a queue with what is in it, and what consumers and leases have of it."""
        queue = self.queue()
        self.ledger.excuse_all()
        self._do(m.QueueDelete(queue))
        self._hear()
        self._declare(queue)

    def _purge(self) -> None:
        self.ledger.excuse_all()
        self._do(m.QueuePurge(self.queue()))

    def _restart(self) -> None:
        """Kill the node when all is on disk, and start the next."""
        self.bench.advance(1)
        self._hear()
        for client in self.clients:
            self.ledger.excuse(client.in_transactions())
        self._open(self.bench.again())

    # Doing it.

    def _declare(self, queue: str) -> None:
        """Declare a queue with arguments that go together."""
        while True:
            arguments: Table = {}
            for chosen in self.random.choices(ARGUMENTS, k=self.random.choice((0, 1, 1, 2, 2, 3, 4))):
                arguments = {**arguments, **chosen}
            answer = self._admin.call(
                m.QueueDeclare(queue, durable=True, arguments={**arguments, **DEAD_LETTERS})
            )
            if isinstance(answer, m.QueueDeclareOk):
                break
            assert isinstance(answer, m.ChannelClose), answer
            self._admin.send(m.ChannelCloseOk())
            self._admin.call(m.ChannelOpen())
        self._do(m.QueueBind(queue, "direct", queue))

    def _do(self, method: Any) -> None:
        self._admin.does(method)

    def _close(self) -> None:
        """Have all clients go, wait until everything is due, and take all that is there."""
        for client in [*self.clients]:
            self._hear()
            if client in self.clients:
                self.clients.remove(client)
                client.leave()
        self.operator.leave()
        self.bench.broker.policies.clear("/", "changing")
        self.bench.host.apply_policies()
        self.bench.advance(DUE_S)
        self.ledger.close(self._taken())
        for name in (DEAD, *self.queues):
            queue = self.bench.queue(name)
            left = queue.ready, queue.ready_bytes, queue.unsettled, queue.unsettled_bytes
            assert left == (0, 0, 0, 0), (name, left)

    def _taken(self) -> Iterable[bytes]:
        channel = Peer091(self.bench).open().channel()
        for queue in (DEAD, *self.queues):
            channel.send(m.BasicConsume(queue, no_ack=True))
        found = []
        for _ in range(8):  # what is held up for a time, or is on disk only
            found += [each.body for each in channel.all() if isinstance(each, Content)]
            self.bench.advance(3)
        return found
