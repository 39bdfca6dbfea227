"""Resumption of senders (AMQP 1.0 part 2, section 2.6.13): deliveries from before are not published again.

    link detached, deliveries not settled by the sender ──> kept, as the target's expiry-policy says (kept_links.py)
    attached again, with the sender's `unsettled` map ──> our attach: the states of those deliveries
    transfer, resume=true ──> answered with that state, not published

On a link with rcv-settle-mode first there is nothing to keep: every answer settles. A sender that lists such deliveries
gets no states from us, and sends them again. What does not fit into one attach, of the sender or of ours, is kept until
the link is attached again. The other direction is in kept_deliveries.py.

The states do not outlive the node: storing the outcome of each delivery would cost as much as the message. A sender
that comes back after a restart gets no states from us, and sends the deliveries again, as section 2.6.13 requires:
messages that were on disk are duplicated. Our target announces that with its durability (part 3, section 3.5.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from protocols.amqp10.broker.kept_links import Key, Termini, Terminus, termini_of
from protocols.amqp10.codec import performatives as p
from protocols.amqp10.codec.errors import AmqpError
from protocols.amqp10.machine.contract import IncomingOwner
from protocols.amqp10.machine.receiving import Unsettled

if TYPE_CHECKING:
    from protocols.amqp10.broker.publishing import Publishing
    from protocols.amqp10.broker.session import ServedSession
    from protocols.amqp10.machine.receiving import IncomingLink


DELIVERIES_MAX: Final = 512  # of a link that are kept, the last ones; more than any credit that we grant


def require_none(attach: p.Attach) -> None:
    """Refuse the attach of a link that cannot be resumed. Raises AmqpError (S176)."""
    if attach.unsettled or attach.incomplete_unsettled:
        raise AmqpError(p.NOT_IMPLEMENTED, "Link recovery not supported")


def tell_durability(target: p.Target) -> None:
    """Lower the durability of a target: it exists again after a restart, but the states of deliveries do not."""
    target.durable = min(target.durable, p.TERMINUS_DURABILITY_CONFIGURATION)


def kept_for(session: ServedSession, attach: p.Attach) -> dict[bytes, Unsettled]:
    """Return the kept deliveries that the sender has not settled and whose states we know, by tag.

    If it could not list all, it may not have settled the others either (part 2, section 2.7.3).
    """
    termini = termini_of(session.client.host)
    kept = termini.targets.get(_key(session, attach.name))
    if not isinstance(kept, KeptSender):
        return {}
    kept.expire()  # from here on the link keeps the deliveries
    if (journal := session.broker.journal) is not None:
        # The states may concern messages published just now: our attach waits until those are on disk.
        journal.holds = True
    asked, lists_all = attach.unsettled or {}, not attach.incomplete_unsettled
    return {
        tag: each
        for tag, each in kept.deliveries.items()
        if each.state is not None and (tag in asked or not lists_all)
    }


def states_of(
    kept: Mapping[bytes, Unsettled], attach: p.Attach
) -> dict[bytes, p.DeliveryState | None] | None:
    """Return the states for our attach, of what the sender lists."""
    asked = attach.unsettled or {}
    return {tag: each.state for tag, each in kept.items() if tag in asked} or None


def serve(
    session: ServedSession,
    link: IncomingLink,
    owner: Publishing,
    target: p.Target,
    kept: dict[bytes, Unsettled],
) -> IncomingOwner:
    """Return the owner of an attached link: one that keeps deliveries, if the link's mode asks for it."""
    if not (link.second or kept):
        return owner
    return Recoverable(session, link, owner, str(target.expiry_policy), int(target.timeout), kept)


def _key(session: ServedSession, link: str) -> Key:
    """Return the key of a kept sender. It includes the user, because every client may use any container-id."""
    return session.client.user.name, session.connection.container, link


class KeptSender(Terminus):
    """The deliveries of a link that its sender had not settled."""

    __slots__ = ("deliveries",)

    def __init__(self, termini: Termini, key: Key, policy: str, timeout_s: int) -> None:
        super().__init__(termini, key)
        self.policy, self.timeout_s = policy, timeout_s
        self.deliveries: dict[bytes, Unsettled] = {}  # by tag
        termini.keep_target(self)

    @property
    def has_gone(self) -> bool:
        return False

    def expire(self) -> None:
        self.stay()
        self._termini.forget_target(self)


class Recoverable(IncomingOwner):
    """The owner of a link with rcv-settle-mode second: it publishes as any other, and keeps unsettled deliveries."""

    __slots__ = ("_expiry", "_kept", "_link", "_owner", "_session")

    def __init__(
        self,
        session: ServedSession,
        link: IncomingLink,
        owner: Publishing,
        policy: str,
        timeout_s: int,
        kept: dict[bytes, Unsettled],
    ) -> None:
        self._session = session
        self._link = link
        self._owner = owner
        self._expiry = policy, timeout_s  # of the deliveries that it leaves behind
        self._kept = kept  # from the link before; not resumed yet

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        if (before := self._kept.pop(tag, None)) is not None:
            self._link.answer(delivery_id, before.state)
        else:
            self._owner.on_message(delivery_id, tag, payload, settled, state)
        delivery = self._link.unsettled.get(delivery_id)
        if delivery is not None and isinstance(delivery.state, p.TransactionalState):
            self._watch(delivery_id, delivery, delivery.state)

    def _watch(self, delivery_id: int, delivery: Unsettled, state: p.TransactionalState) -> None:
        """Replace a transactional state, a mere promise, when the transaction is discharged (part 4, section
        4.4.4.1)."""
        link, promised = self._link, state.outcome

        def discharged(committed: bool) -> None:
            delivery.state = promised if committed else None
            link.answer(delivery_id, delivery.state)

        self._session.transactions.watch(state, discharged)

    def on_aborted(self, tag: bytes) -> None:
        self._kept.pop(tag, None)

    def on_detached(self, closed: bool) -> None:
        unsettled = self._link.unsettled
        for delivery_id, outcome in self._owner.untold():
            if (delivery := unsettled.get(delivery_id)) is not None:
                delivery.state = outcome
        self._owner.on_detached(closed)
        deliveries = self._kept | {each.tag: each for each in unsettled.values()}
        if deliveries and not closed:
            key = _key(self._session, self._link.name)
            kept = KeptSender(termini_of(self._session.client.host), key, *self._expiry)
            kept.deliveries = dict(list(deliveries.items())[-DELIVERIES_MAX:])
            kept.leave(self._session)
