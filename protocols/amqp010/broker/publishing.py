"""Publish transfers from a client: check the destination's exchange, read the header segment, hand a message to the
broker.

This is the hot path. The checks for a destination are made once for each exchange, and remembered as long as neither
topology nor permissions change.

A message that no queue takes goes to the exchange's alternate, or is dropped, and is completed and accepted all the
same: discard-unroutable makes no difference, as in Apache Qpid. A message with the flag immediate goes only to queues
that can deliver it at once. A full queue ends the session: the peer cannot be told in any other way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker import REFUSED, WORK_MAX
from leveret.errors import PreconditionFailed
from leveret.message import NO_FACTS, Message
from leveret.protocols.amqp010.broker.encoding import ENCODING, NO_BODY
from leveret.protocols.amqp010.broker.envelope import envelope_of
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.types import MalformedError
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.publishing.publish_targets import UNCHECKED, PublishTarget, current_target, targets_of

if TYPE_CHECKING:
    from leveret.message import Facts
    from leveret.protocols.amqp010.broker.envelope import Envelope
    from leveret.protocols.amqp010.broker.session import ServedSession


class Publishing:
    """Publishes the messages of one session."""

    __slots__ = (
        "_broker",
        "_client",
        "_host",
        "_session",
        "_target",
        "_targets",
        "_transfer",
        "peer",
    )

    def __init__(self, session: ServedSession) -> None:
        self._session = session
        self._broker = session.broker
        self._client = session.client
        self._host = session.client.host
        self.peer = session.client.peer  # the other end of the connection
        self._targets = targets_of(session.client, "amqp010")
        self._transfer: c.MessageTransfer | None = None  # the last one, and where it went:
        self._target = PublishTarget(self._host.default_exchange, False, UNCHECKED)

    def publish(self, transfer: c.MessageTransfer, header: bytes, body: bytes | None) -> None:
        """Publish one message. Raises Failure, or SessionError."""
        target = self._target
        if transfer is not self._transfer or target.revision != self._host.checks_revision:
            target = self._aim(transfer)
        try:
            envelope = envelope_of(header)
        except MalformedError as error:
            raise SessionError(c.ERROR_CODE_ILLEGAL_ARGUMENT, f"a header cannot be read: {error}") from None
        exchange, facts = target.exchange, envelope.facts
        if envelope.expiration is not None:
            facts = envelope.facts_at(self._broker.clock.wall())
        if facts.user_id is not None or target.guarded:
            self._check(target, envelope, facts)
        if body is None:
            header, body = header + NO_BODY, b""
        message = Message(ENCODING, exchange.name, envelope.routing_key, header, body, facts)
        message.peer = self.peer  # kept in memory only, for queues with no-local
        if (work := self._session.tx) is not None:
            work.publish(exchange, message)
            return
        if envelope.immediate:
            outcome = self._broker.publish_immediate(exchange, message)
        else:
            outcome = self._broker.publish(exchange, message)
        if outcome is REFUSED:
            self._refused()
        if facts.durable:
            self._session.persistent = True

    def publish_run(self, transfer: c.MessageTransfer, headers: list[bytes], bodies: list[bytes]) -> int:
        """Publish messages as `publish` would, as long as each is simply taken; return how many were. Raise nothing.

        They go together as long as what the core reads of their headers is alike; those that need a check each, or have
        a time of their own, are left for `publish`.
        """
        target = self._target
        if (
            transfer is not self._transfer
            or target.revision != self._host.checks_revision
            or target.guarded
            or self._session.tx is not None
        ):
            return 0
        name, peer, like = target.exchange.name, self.peer, NO_FACTS
        messages: list[Message] = []
        for header, body in zip(headers, bodies, strict=True):
            try:
                envelope = envelope_of(header)
            except MalformedError:
                break
            facts = envelope.facts
            if envelope.expiration is not None or envelope.immediate or facts.user_id is not None:
                break
            if not messages:
                like = facts
            elif facts is not like and not facts.is_like(like):
                break
            message = Message(ENCODING, name, envelope.routing_key, header, body, facts)
            message.peer = peer
            messages.append(message)
        taken = self._broker.publish_run(target.exchange, messages, WORK_MAX) if messages else 0
        if taken and like.durable:
            self._session.persistent = True
        return taken

    def check(self, transfer: c.MessageTransfer) -> None:
        """Check the destination of a message whose content is still to come, as `publish` does. Raises Failure."""
        self._aim(transfer)

    def _aim(self, transfer: c.MessageTransfer) -> PublishTarget:
        """Return the checked target of a transfer. Raises what the checks raise (S046, S047, S087)."""
        name = transfer.destination or ""
        target = current_target(self._targets, self._client, name) or self._targets.check(
            self._client, name, name
        )
        self._transfer, self._target = transfer, target
        return target

    def _check(self, target: PublishTarget, envelope: Envelope, facts: Facts) -> None:
        """Check the user-id (S088) and the permission for the topic (S089)."""
        if facts.user_id is not None:
            try:
                self._client.require_user_id(facts.user_id)
            except PreconditionFailed as failure:
                raise SessionError(c.ERROR_CODE_UNAUTHORIZED_ACCESS, str(failure)) from None
        if target.guarded:
            self._client.check_topics(target.exchange, (envelope.routing_key,))

    def _refused(self) -> None:
        self._broker.settle()  # the commands before it have taken effect and are reported
        host, queue = self._client.host.name, self._broker.refused_by
        if not queue:
            raise SessionError(c.ERROR_CODE_PRECONDITION_FAILED, self._broker.refused_for)
        raise SessionError(
            c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED,
            f"queue '{queue}' in vhost '{host}' is full and takes no more",
        )
