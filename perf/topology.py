"""Declare the exchange and the queues of a plan before it runs, and delete those that were new afterwards.

This is done over AMQP 0-9-1, also for a load in 1.0. A queue that existed before is used as it is, and stays.
"""

from __future__ import annotations

from leveret.perf.amqp091 import Closed, Setup091
from leveret.perf.errors import PerfError
from leveret.perf.plan import Plan
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire

NOT_FOUND = 404
PRECONDITION_FAILED = 406
ADVICE = "--predeclared uses it as it is, --delete deletes it first"


class Topology:
    """The exchange and queues of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._queues: list[str] = []
        self._exchange = False

    def declare(self) -> None:
        """Declare them, unless they are predeclared. Raises PerfError if the broker refuses."""
        plan = self._plan
        if plan.predeclared:
            return
        talk = Setup091(plan.url)
        try:
            channel = talk.open_channel()
            if plan.exchange:
                channel = self._declare_exchange(talk, channel)
            for number in range(plan.queues):
                channel = self._declare_queue(talk, channel, number)
        finally:
            talk.close()

    def _declare_exchange(self, talk: Setup091, channel: int) -> int:
        plan = self._plan
        if plan.delete:
            talk.call(m.ExchangeDelete(plan.exchange), m.ExchangeDeleteOk, channel)
        exists, channel = _exists(talk, channel, m.ExchangeDeclare(plan.exchange, passive=True))
        method = m.ExchangeDeclare(plan.exchange, plan.exchange_type, durable=plan.persistent)
        _declare(talk, channel, method, f"the exchange '{plan.exchange}'")
        self._exchange = not exists
        return channel

    def _declare_queue(self, talk: Setup091, channel: int, number: int) -> int:
        plan = self._plan
        queue = plan.queue(number)
        if plan.delete:
            talk.call(m.QueueDelete(queue), m.QueueDeleteOk, channel)
        exists, channel = _exists(talk, channel, m.QueueDeclare(queue, passive=True))
        durable = plan.persistent or plan.arguments.get("x-queue-type", "classic") != "classic"
        arguments: wire.FieldTable = {**plan.arguments}
        method = m.QueueDeclare(queue, durable=durable, arguments=arguments)
        _declare(talk, channel, method, f"the queue '{queue}'")
        if not exists:
            self._queues.append(queue)
        if plan.exchange:
            talk.call(m.QueueBind(queue, plan.exchange, plan.filter(number)), m.QueueBindOk, channel)
        return channel

    def remove(self) -> None:
        """Delete the queues and the exchange that did not exist before, unless they are to be kept."""
        if self._plan.keep or not (self._queues or self._exchange):
            return
        talk = Setup091(self._plan.url)
        try:
            channel = talk.open_channel()
            for queue in self._queues:
                talk.call(m.QueueDelete(queue), m.QueueDeleteOk, channel)
            if self._exchange:
                talk.call(m.ExchangeDelete(self._plan.exchange), m.ExchangeDeleteOk, channel)
        finally:
            talk.close()


def preparation(plan: Plan) -> Topology:
    return Topology(plan)


def _exists(talk: Setup091, channel: int, asking: wire.Method) -> tuple[bool, int]:
    """Return whether a queue or exchange exists, with the channel open again if the broker closed it for asking."""
    answer = m.QueueDeclareOk if isinstance(asking, m.QueueDeclare) else m.ExchangeDeclareOk
    try:
        talk.call(asking, answer, channel)
        return True, channel
    except Closed as closed:
        if closed.reply_code != NOT_FOUND:
            raise
        talk.send(channel, m.ChannelCloseOk())
        talk.call(m.ChannelOpen(), m.ChannelOpenOk, channel)
        return False, channel


def _declare(talk: Setup091, channel: int, method: wire.Method, what: str) -> None:
    answer = m.QueueDeclareOk if isinstance(method, m.QueueDeclare) else m.ExchangeDeclareOk
    try:
        talk.call(method, answer, channel)
    except Closed as closed:
        advice = f"; {ADVICE}" if closed.reply_code == PRECONDITION_FAILED else ""
        raise PerfError(f"{what} cannot be declared: {closed.text}{advice}") from None
