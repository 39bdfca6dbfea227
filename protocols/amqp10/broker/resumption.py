"""Resumption of senders (AMQP 1.0 part 2, section 2.6.13): deliveries from before are not published again.

    link detached, deliveries not settled by the sender ──> kept, as the target's expiry-policy says (termini.py)
    attached again, with the sender's `unsettled` map ──> our attach: the states of those deliveries
    transfer, resume=true ──> answered with that state, not published

On a link with rcv-settle-mode first there is nothing to keep: every answer settles. Mode second is granted where the
target asks for something to keep (`asks_to_keep`), and answered with first elsewhere, as by RabbitMQ and Artemis. A
sender that lists deliveries of mode first gets no states from us, and sends them again. What does not fit into one
attach, of the sender or of ours, is kept until the link is attached again. The other direction is in
kept_deliveries.py.

The states outlive the node if the target asks for the durability `unsettled-state` and outlives its connection: each
accepted delivery is noted in the commit that has its message (features/unsettled_map.py), until the
sender has settled it. Else a sender that comes back after a restart gets no states from us, and sends the deliveries
again, as section 2.6.13 requires: messages that were on disk are duplicated. Our target announces that with its
durability (part 3, section 3.5.5). What was not accepted is not noted: it is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from leveret.features.unsettled_maps.unsettled_map import (
    LinkNames,
    UnsettledMap,
    can_be_kept,
    unsettled_map,
    unsettled_maps_of,
)
from leveret.protocols.amqp10.broker.termini import Key, Termini, Terminus, key_of, termini_of
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.machine.contract import IncomingOwner
from leveret.protocols.amqp10.machine.incoming_link import ACCEPTED, Unsettled

if TYPE_CHECKING:
    from leveret.protocols.amqp10.broker.publishing import Publishing
    from leveret.protocols.amqp10.broker.session import ServedSession
    from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
    from leveret.values import Table


DELIVERIES_MAX: Final = 512  # of a link that are kept, the last ones; more than any credit that we grant
SENDER: Final = "sender"  # the role in the names of a link whose states are on disk
NOTED: Final = 0  # the number of a delivery that was accepted


def asks_to_keep(attach: p.Attach) -> bool:
    """Return whether a sender asks for a target that keeps deliveries, or comes back for some.

    Azure's client for Python asks for rcv-settle-mode second without that, and never settles: it waits for an answer
    that settles, and sends its message again.
    """
    if attach.unsettled or attach.incomplete_unsettled:
        return True
    target = attach.target
    lasting = (p.TERMINUS_EXPIRY_POLICY_CONNECTION_CLOSE, p.TERMINUS_EXPIRY_POLICY_NEVER)
    return isinstance(target, p.Target) and bool(
        target.durable or target.timeout or target.expiry_policy in lasting
    )


def require_none(attach: p.Attach) -> None:
    """Refuse the attach of a link that cannot be resumed. Raises AmqpError (S176)."""
    if attach.unsettled or attach.incomplete_unsettled:
        raise AmqpError(p.NOT_IMPLEMENTED, "Link recovery not supported")


def tell_durability(session: ServedSession, link: IncomingLink, target: p.Target) -> None:
    """Lower the durability of a target to what it has.

    The states of deliveries are there again after a restart if there are any, and if the target is to outlive link,
    session and connection, which end with the node.
    """
    lasts = bool(target.timeout) or target.expiry_policy == p.TERMINUS_EXPIRY_POLICY_NEVER
    if not (link.second and lasts and can_be_kept(session.client.host, _names(session, link.name))):
        target.durable = min(target.durable, p.TERMINUS_DURABILITY_CONFIGURATION)


def kept_for(session: ServedSession, attach: p.Attach) -> dict[bytes, Unsettled]:
    """Return the kept deliveries that the sender has not settled and whose states we know, by tag.

    If it could not list all, it may not have settled the others either (part 2, section 2.7.3).
    """
    termini, key = termini_of(session.client.host), key_of(session, attach.name)
    if (before := termini.publishing.get(key)) is not None:  # it has lost its connection, or is replaced
        before.detach(AmqpError(p.LINK_STOLEN, f"link '{attach.name}' was attached elsewhere"))
    kept = termini.targets.get(key)
    if not isinstance(kept, KeptSender):
        return {}
    kept.forget()  # from here on the link keeps the deliveries
    if (journal := session.broker.journal) is not None:
        # The states may concern messages published just now: our attach waits until those are on disk.
        journal.holds = True
    tags, lists_all = attach.unsettled or {}, not attach.incomplete_unsettled
    known = {tag: each for tag, each in kept.deliveries.items() if tag in tags or not lists_all}
    kept.drop([each for tag, each in kept.deliveries.items() if tag not in known])
    return {tag: each for tag, each in known.items() if each.state is not None}


def states_of(
    kept: Mapping[bytes, Unsettled], attach: p.Attach
) -> dict[bytes, p.DeliveryState | None] | None:
    """Return the states for our attach, of what the sender lists."""
    tags = attach.unsettled or {}
    return {tag: each.state for tag, each in kept.items() if tag in tags} or None


def serve(
    session: ServedSession,
    link: IncomingLink,
    owner: Publishing,
    target: p.Target,
    kept: dict[bytes, Unsettled],
) -> IncomingOwner:
    """Return the owner of an attached link: one that keeps deliveries, if the link's mode asks for it."""
    policy, timeout_s = str(target.expiry_policy), int(target.timeout)
    host, names = session.client.host, _names(session, link.name)
    unsettled: UnsettledMap | None = None
    if target.durable == p.TERMINUS_DURABILITY_UNSETTLED_STATE:
        terms: Table = {"policy": policy, "timeout": timeout_s}
        unsettled = unsettled_map(host, names, terms)
        link.tells_settled = True
        termini_of(host).publishing[key_of(session, link.name)] = link
    else:
        forget(session, link.name)
    if not (link.second or kept):
        return owner
    return Recoverable(session, link, owner, policy, timeout_s, kept, unsettled)


def forget(session: ServedSession, link: str) -> None:
    """Remove from the store what is there of an earlier link of this name."""
    if (unsettled := unsettled_maps_of(session.client.host).get(_names(session, link))) is not None:
        unsettled.end()


def _names(session: ServedSession, link: str) -> LinkNames:
    return SENDER, *key_of(session, link)


class KeptSender(Terminus):
    """The deliveries of a link that its sender had not settled, by tag. `unsettled` is what of them is on disk."""

    __slots__ = ("_unsettled", "deliveries")

    def __init__(
        self,
        termini: Termini,
        key: Key,
        policy: str,
        timeout_s: int,
        deliveries: dict[bytes, Unsettled],
        unsettled: UnsettledMap | None,
    ) -> None:
        super().__init__(termini, key)
        self.policy, self.timeout_s = policy, timeout_s
        self.deliveries = deliveries
        self._unsettled = unsettled
        termini.keep_target(self)

    @property
    def has_gone(self) -> bool:
        return False

    def drop(self, deliveries: list[Unsettled]) -> None:
        """Forget deliveries that the sender has forgotten."""
        for each in deliveries:
            each.settled = True
            if self._unsettled is not None:
                self._unsettled.unnote(each.tag)

    def forget(self) -> None:
        """Keep nothing any more: the deliveries are another's now."""
        self.stay()
        self._termini.forget_target(self)

    def expire(self) -> None:
        self.forget()
        if self._unsettled is not None:
            self._unsettled.end()


def restore(unsettled: UnsettledMap, key: Key) -> None:
    """Let a sender find the deliveries that were accepted before a restart. Raises ValueError if that is damaged."""
    deliveries: dict[bytes, Unsettled] = {}
    for tag in unsettled.notes:
        accepted = deliveries[tag] = Unsettled(tag, True)
        accepted.state = ACCEPTED
    policy, timeout_s = unsettled.terms.get("policy"), unsettled.terms.get("timeout")
    if not isinstance(policy, str) or not isinstance(timeout_s, int):
        raise ValueError("its terms are missing")
    if not deliveries:
        unsettled.end()
        return
    kept = KeptSender(termini_of(unsettled.host), key, policy, timeout_s, deliveries, unsettled)
    kept.outlive_all()


class Recoverable(IncomingOwner):
    """The owner of a link with rcv-settle-mode second: it publishes as any other, and keeps unsettled deliveries."""

    __slots__ = ("_expiry", "_kept", "_link", "_owner", "_session", "_unsettled")

    def __init__(
        self,
        session: ServedSession,
        link: IncomingLink,
        owner: Publishing,
        policy: str,
        timeout_s: int,
        kept: dict[bytes, Unsettled],
        unsettled: UnsettledMap | None,
    ) -> None:
        self._session = session
        self._link = link
        self._owner = owner
        self._expiry = policy, timeout_s  # of the deliveries that it leaves behind
        self._kept = kept  # from the link before; not resumed yet
        self._unsettled = unsettled  # the accepted deliveries on disk, if these outlive the node
        for tag, each in kept.items():
            if unsettled is not None and isinstance(each.state, p.Accepted):
                unsettled.note(tag, NOTED)

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        if (before := self._kept.pop(tag, None)) is not None:
            self._link.answer(delivery_id, before.state)
            if settled:
                self.on_settled([before])
        else:
            self._owner.on_message(delivery_id, tag, payload, settled, state)
        self._note(delivery_id, tag)

    def on_unsupported(
        self, delivery_id: int, tag: bytes, settled: bool, state: p.DeliveryState | None, error: AmqpError
    ) -> None:
        self._owner.on_unsupported(delivery_id, tag, settled, state, error)
        self._note(delivery_id, tag)

    def _note(self, delivery_id: int, tag: bytes) -> None:
        """Note what has been said of a new delivery that the sender has to settle."""
        delivery = self._link.unsettled.get(delivery_id)
        if delivery is None:
            return
        if isinstance(delivery.state, p.TransactionalState):
            self._watch(delivery_id, delivery, delivery.state)
        elif self._unsettled is not None and delivery.second and self._owner.has_accepted(delivery_id):
            self._unsettled.note(tag, NOTED)
            self._session.persistent = True

    def _watch(self, delivery_id: int, delivery: Unsettled, state: p.TransactionalState) -> None:
        """Replace a transactional state, a mere promise, when the transaction is discharged (part 4, section
        4.4.4.1)."""
        link, promised, unsettled = self._link, state.outcome, self._unsettled

        def discharged(committed: bool) -> None:
            delivery.state = promised if committed else None
            link.answer(delivery_id, delivery.state)
            if (
                committed
                and unsettled is not None
                and isinstance(promised, p.Accepted)
                and not delivery.settled
            ):
                unsettled.note(delivery.tag, NOTED)

        self._session.transactions.watch(state, discharged)

    def on_aborted(self, tag: bytes) -> None:
        if (aborted := self._kept.pop(tag, None)) is not None:
            self.on_settled([aborted])

    def on_settled(self, deliveries: list[Unsettled]) -> None:
        for each in deliveries:
            each.settled = True
            if self._unsettled is not None:
                self._unsettled.unnote(each.tag)

    def on_detached(self, closed: bool) -> None:
        unsettled = self._link.unsettled
        for delivery_id, outcome in self._owner.untold():
            if (delivery := unsettled.get(delivery_id)) is not None:
                delivery.state = outcome
        self._owner.on_detached(closed)
        termini, key = termini_of(self._session.client.host), key_of(self._session, self._link.name)
        if termini.publishing.get(key) is self._link:
            del termini.publishing[key]
        deliveries = list((self._kept | {each.tag: each for each in unsettled.values()}).items())
        if deliveries and not (closed or self._session.client.is_disowned):
            left, dropped = deliveries[-DELIVERIES_MAX:], deliveries[:-DELIVERIES_MAX]
            kept = KeptSender(termini, key, *self._expiry, dict(left), self._unsettled)
            kept.drop([each for _, each in dropped])
            kept.leave(self._session)
        elif self._unsettled is not None:
            self._unsettled.end()
