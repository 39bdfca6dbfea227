"""Dead letters of a queue are held until every queue that they are routed to has taken them (at least once).

    a message dies ──> waiting ──> in hand ── all targets have it ──> gone
                                   │    ^
                       refused, or no target: kept in hand, and tried again
                       when a target has room, the topology has changed, or after a while

A queue asks for this with the strategy `at-least-once` (RabbitMQ's documentation of quorum queues, "At-Least-Once Dead
Lettering"). `HeldDeadLetters` is a queue of its own behind it, with a number in the store: so its messages are durable,
and are paged out as others are. A dead letter is written there in the commit that removes it from the queue in
which it died, and is removed in the commit that has it in the last of its targets: a crash loses and doubles nothing.

A held message is the one that died, with the note of its death, under its old exchange and key: what becomes of it is
decided anew whenever the topology has changed. The names of targets that have it already are in its notes.

At most `PREFETCH` dead letters are in hand, RabbitMQ's number; the others wait behind them. Each target gets them in
their order, and is asked once in each round, however many it is to get. Where those in hand wait for their targets,
those behind them that have others are looked for by a search (`search.py`), which passes by all that wait for the same.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from leveret.clock import NEVER
from leveret.delivery import UNLIMITED, Consumer, Delivery, Window
from leveret.errors import PLUGIN_MISTAKES
from leveret.exchanges.exchange_type import Exchange
from leveret.exchanges.routing import Route, identity_at, kept_by
from leveret.limits import QueueLimits
from leveret.message import Message, Notes
from leveret.queues.contract import QueueTerms
from leveret.queues.dead_letters import addressed, is_cycle, notes_of_death
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.queue import REJECTED, Queue
from leveret.queues.work_queue import WorkQueue
from leveret.selectors.predicate import Predicate

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.exchanges.duplicates import Identity

log: Final = logging.getLogger("leveret.broker")

PREFETCH: Final = 32  # dead letters of a queue in hand: RabbitMQ's dead_letter_worker_consumer_prefetch
IN_HAND_OCTETS: Final = 16 << 20  # bytes of their bodies; the last one may exceed it
PORTION: Final = 1_000  # dead letters that are tried at once: 10 ms
FIRST_PAUSE_S: Final = 1.0  # to the first attempt for which nothing but time is a reason; doubled each time,
LAST_PAUSE_S: Final = 180.0  # up to RabbitMQ's dead_letter_worker_publisher_confirm_timeout
LOG_PAUSE_S: Final = 60.0  # between log lines about one queue, which may have no room many times a second
PARTED_MAX: Final = 1_000  # dead letters behind those in hand of which some targets have got their copies
ANEW: Final = -1  # a revision of no virtual host
NO_LIMITS: Final = QueueLimits()


class Letter:
    """A dead letter in hand."""

    __slots__ = ("copy", "delivery", "identity", "revision", "route", "whole", "why")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.copy: Message | None = None  # what the targets get
        self.route: Route | None = None  # the targets that do not have it yet; None: there is no target
        self.whole: Route | None = None  # the route as it was found
        self.identity: Identity | None = None  # by which its exchange drops duplicates
        self.revision = ANEW  # of the virtual host when it was routed
        self.why = ""  # why it is held


class Seeker(Consumer):
    """The cursor among the dead letters behind those in hand. It is in no ring, and nothing is sent to it."""

    __slots__ = ()

    def __init__(self, held: HeldDeadLetters) -> None:
        super().__init__(held, False, UNLIMITED, Window(), selector=Predicate(held.may_go))

    def room(self) -> int:
        return 0

    def deliver(self, deliveries: list[Delivery]) -> None:
        raise AssertionError("it takes what it finds itself")

    def cancelled(self) -> None:
        """Nothing is left to do: it ends with its queue."""


def hold(queue: Queue, message: Message, reason: str) -> None:
    """Hold a message that has just died in a queue, until its targets have taken it; they are asked in this batch."""
    assert isinstance(queue, WorkQueue), "messages do not die in streams"
    held = queue.dead_letters
    if held is None:
        held = queue.dead_letters = HeldDeadLetters(queue)
        catalogue = queue.settling.catalogue
        if catalogue is not None and queue.virtual_host.queues.get(queue.name) is queue:
            catalogue.keep(queue)
    held.push(noted(message, notes_of_death(queue, message, reason)))


@mypyc_attr(allow_interpreted_subclasses=True)
class HeldDeadLetters(WorkQueue):
    """The dead letters of one queue that not all of their targets have taken. No client sees this queue."""

    may_lack: ClassVar[bool] = False
    __slots__ = (
        "_again",
        "_busy",
        "_dropped",
        "_letters",
        "_logged_at",
        "_parted",
        "_passes_keepers",
        "_passing",
        "_pause_s",
        "_rescans",
        "_revision",
        "_said",
        "_seeker",
        "_timer",
        "confirmed",
        "in_hand",
        "in_hand_bytes",
        "source",
    )

    def __init__(self, source: WorkQueue) -> None:
        terms = QueueTerms(type=source.type, durable=source.durable)
        super().__init__(source.virtual_host, source.name, NO_LIMITS, terms)
        self.source = source

    def set_up(self) -> None:
        self.in_hand = 0  # dead letters, less the one that is being given to its targets
        self.in_hand_bytes = 0  # of their bodies
        self.confirmed = 0  # dead letters that all their targets have taken
        self._letters: dict[Letter, None] = {}  # in the order of their deaths
        self._again = False  # those in hand are to be tried, too
        self._revision = ANEW  # of the virtual host in the last round
        self._busy = False  # a round is under way
        self._dropped = 0  # in this round, because the strategy is not `at-least-once` any more
        self._pause_s = FIRST_PAUSE_S
        self._timer: Timer | None = None
        self._seeker: Seeker | None = None  # there while dead letters behind those in hand are looked for
        self._passing: set[Queue] = set()  # targets whose dead letters it passes by
        self._passes_keepers = False  # and those for exchanges that keep messages, of which one has failed
        self._rescans = False  # it begins anew when it has come to the end, as one of these targets has room
        self._parted: dict[Delivery, None] = {}  # dead letters that it has put back: some targets are full
        self._said = ""  # the reason that the log has, while they wait
        self._logged_at = -LOG_PAUSE_S

    @property
    def described(self) -> str:
        return f"the dead letters of {self.source.described}"

    @property
    def count(self) -> int:
        """Return how many dead letters are held."""
        return self.ready + self.in_hand

    @property
    def octets(self) -> int:
        """Return the bytes of their bodies."""
        return self.ready_bytes + self.in_hand_bytes

    @property
    def why(self) -> str:
        """Return why the first of them is held; empty if it has not been refused."""
        first = next(iter(self._letters), None)
        return "" if first is None else first.why

    def push(self, message: Message) -> bool:
        self.touch()
        return super().push(message)

    # Events.

    def wake(self) -> None:
        """Try those in hand again in the next settle, as a target may have room."""
        self._again = True
        self.touch()

    def route_again(self) -> None:
        """Route all anew in the next settle, and try them."""
        for letter in self._letters:
            letter.revision = ANEW
        self._revision = ANEW
        self.wake()

    def _time_is_over(self, now: float) -> None:
        self._timer = None
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        self.route_again()

    def _touch_later(self, now: float) -> None:
        self.touch()

    # Rounds.

    def dispatch(self) -> None:
        """Give dead letters to their targets, as far as these take them."""
        if self._busy or self.deleted:
            return
        self._busy = True
        try:
            self._go_round()
        finally:
            self._busy = False
        self._wait()
        if self.source.awaited:
            self.source.touch()  # it has more room

    def _go_round(self) -> None:
        full: set[Queue] = set()  # targets that have refused one, and are not asked again
        revision = self.virtual_host.revision
        if revision != self._revision:
            self._end_seeking()
        if self._again or revision != self._revision:  # a newer one could overtake them on another way
            self._again, self._revision = False, revision
            for letter in list(self._letters):
                self._try(letter, full)
            self._look_at_passing(full)
        else:
            for letter in self._letters:
                if letter.route is not None:
                    full.update(letter.route.queues)
        left = PORTION
        while self.ready and len(self._letters) < PREFETCH and self.in_hand_bytes < IN_HAND_OCTETS:
            if left <= 0:
                self.settling.later(PAUSE_S, self._touch_later)
                return
            taken = self._take(PREFETCH - len(self._letters), IN_HAND_OCTETS - self.in_hand_bytes)
            if not taken:
                return  # a page is being read
            left -= len(taken)
            for delivery in taken:
                self._take_in_hand(delivery, full)
        if self.ready and self.source.limits.at_least_once:
            self._look_past(full, left)
        else:
            self._end_seeking()

    def _look_at_passing(self, full: set[Queue]) -> None:
        """Begin the search behind those in hand anew, or later, if one of the targets that it has passed has room."""
        if self._seeker is None or all(queue in full or self._is_awaiting(queue) for queue in self._passing):
            return
        if self._seeker.searching:
            self._rescans = True  # an end has to be reached, however often targets get room
        else:
            self._end_seeking()

    def _is_awaiting(self, queue: Queue) -> bool:
        return isinstance(queue, WorkQueue) and queue.awaited is not None and self in queue.awaited

    def _look_past(self, full: set[Queue], left: int) -> None:
        """Give dead letters behind those in hand to targets that those before them do not wait for."""
        search = self.searched()
        if self._seeker is None:
            self._seeker = Seeker(self)
            search.add(self._seeker)
        self._passing |= full
        while left > 0:
            if (delivery := search.next_for(self._seeker)) is None:
                if self._rescans and not self._seeker.searching:
                    self._end_seeking()
                    self.touch()
                return
            left -= 1
            letter = self._take_in_hand(delivery, self._passing)
            if letter in self._letters:  # some of its targets are full: it waits at its place
                self._passes_keepers |= letter.route is not None and bool(letter.route.keepers)
                self._let_go_of(letter)
                self._parted[delivery] = None
                self.due(delivery)
        self.settling.later(PAUSE_S, self._touch_later)

    def may_go(self, message: Message) -> bool:
        """Return whether a dead letter behind those in hand has a target that the search does not pass by."""
        letter = Letter(Delivery(message, self, 0, NEVER))
        self._route(letter)
        if letter.route is None or (self._passes_keepers and letter.route.keepers):
            return False
        queues = letter.route.queues
        passed = [queue for queue in queues if queue in self._passing]
        if queues and len(passed) == len(queues) and not letter.route.keepers:
            return False
        return not passed or len(self._parted) < PARTED_MAX

    def _end_seeking(self) -> None:
        if self._seeker is not None and self.search is not None:
            self.search.remove(self._seeker)
        self._seeker, self._rescans, self._passes_keepers = None, False, False
        self._passing.clear()

    def _let_go_of(self, letter: Letter) -> None:
        del self._letters[letter]
        self.in_hand -= 1
        self.in_hand_bytes -= letter.delivery.message.size

    def _take_in_hand(self, delivery: Delivery, full: set[Queue]) -> Letter:
        self._parted.pop(delivery, None)
        delivery.message = self.leaving(delivery)
        letter = Letter(delivery)
        self.in_hand += 1
        self.in_hand_bytes += delivery.message.size
        self._letters[letter] = None
        self._try(letter, full)
        return letter

    def _try(self, letter: Letter, full: set[Queue]) -> None:
        """Give a dead letter to targets that do not have it, and let it go if all have it now."""
        if letter.revision != self.virtual_host.revision or (
            letter.whole is not None and letter.whole.passed
        ):
            self._route(letter)
        size = letter.delivery.message.size
        self.in_hand -= 1  # while it is on its way it takes no room in its queue, which may be the target
        self.in_hand_bytes -= size
        try:
            gone = letter.route is not None and self._give(letter, letter.route, full)
        finally:
            self.in_hand += 1
            self.in_hand_bytes += size
        if not gone and not self.source.limits.at_least_once:
            self._dropped += 1
            gone = True
        if gone:
            self._let_go_of(letter)
            self._pause_s = FIRST_PAUSE_S
            self.forget((letter.delivery,))

    def _route(self, letter: Letter) -> None:
        """Find the targets that a dead letter is still to reach, and note the reason if there are none."""
        host, limits, message = self.virtual_host, self.source.limits, letter.delivery.message
        letter.revision = host.revision
        letter.copy = letter.route = letter.whole = None
        name = limits.dead_letter_exchange
        exchange = None if name is None else host.exchanges.get(name)
        if exchange is None:
            letter.why = "no exchange for dead letters" if name is None else f"no exchange '{name}'"
            return
        assert message.notes is not None, "it has died"
        copy = addressed(message, exchange.name, limits.dead_letter_key, without_reached(message.notes))
        try:
            route = exchange.broker.route(exchange, copy)
            letter.route = self._left_of(route, copy, message.notes)
            letter.identity = None if exchange.deduplication is None else identity_at(exchange, copy)
        except PLUGIN_MISTAKES as error:  # raised by a plug-in
            letter.why = f"exchange '{name}' failed: {type(error).__name__}: {error}"
            return
        letter.copy, letter.whole = copy, route
        if letter.route is None:
            letter.why = (
                f"exchange '{name}' would send them round in a circle only"
                if route.queues
                else f"exchange '{name}' has no queue for the key '{copy.key}'"
            )

    def _left_of(self, route: Route, copy: Message, notes: Notes) -> Route | None:
        """Return the part of a route that has not been gone yet; None if it leads, and led, to no target at all."""
        assert copy.notes is not None, "it has died"
        may_circle = copy.notes.deaths[0].reason != REJECTED
        queues: list[Queue] = []
        for queue in route.queues:
            if (False, queue.name) not in notes.reached and not (may_circle and is_cycle(queue, copy)):
                queues.append(queue)
        keepers: list[Exchange] = []
        for keeper in route.keepers:
            if (True, keeper.name) not in notes.reached:
                keepers.append(keeper)
        if not (queues or route.handled or notes.reached):
            return None
        return route.among(tuple(queues), tuple(keepers))

    def _give(self, letter: Letter, route: Route, full: set[Queue]) -> bool:
        """Give a dead letter to the targets of a route. Return whether all have it; else keep the rest of the route."""
        copy, notes = letter.copy, letter.delivery.message.notes
        assert copy is not None, "it has been routed"
        assert notes is not None, "it has died"
        exchange = self.virtual_host.exchanges[copy.exchange]
        known, identity = exchange.deduplication, letter.identity
        if known is not None and identity is not None and not notes.reached and known.repeats(identity):
            exchange.published += 1
            exchange.count_copies(0)
            return True  # a duplicate
        reached, refusing = list(notes.reached), list[Queue]()
        for queue in route.queues:
            if queue not in full and queue.would_take(copy) and queue.push(copy):
                reached.append((False, queue.name))
                if isinstance(queue, WorkQueue) and queue.awaited:
                    queue.touch()  # there may be room for others that await it
            else:
                self._await(queue, copy, full)
                refusing.append(queue)
                letter.why = f"queue '{queue.name}' is full"
        failing: list[Exchange] = []
        for keeper in route.keepers:
            if kept_by(keeper, copy):
                reached.append((True, keeper.name))
            elif route.handled:
                failing.append(keeper)
                letter.why = f"exchange '{keeper.name}' failed to keep it"
        if refusing or failing:
            letter.route = route.among(tuple(refusing), tuple(failing))
            if len(reached) > len(notes.reached):
                message = letter.delivery.message
                self.revise(letter.delivery, noted(message, with_reached(notes, tuple(reached))))
            return False
        exchange.published += 1
        exchange.count_copies(len(reached))
        whole = letter.whole
        assert whole is not None, "it has been routed"
        if known is not None and identity is not None:
            known.remember(identity, copy.facts.durable and whole.is_durable)
        if whole.passed:
            whole.note_passed(copy, taken=True)
        self.confirmed += 1
        return True

    def _await(self, queue: Queue, copy: Message, full: set[Queue]) -> None:
        """Have the queue wake this one when it has room for a message."""
        if queue not in full and isinstance(queue, WorkQueue):
            if queue.awaited is None:
                queue.awaited = {}
            queue.awaited[self] = copy.size
        full.add(queue)

    # Waiting.

    def _wait(self) -> None:
        """After a round, see to it that what is still in hand is tried again, and tell the log of a change."""
        settling, host = self.settling, self.virtual_host
        if self._dropped:
            log.warning(
                "%d dead letters of %s were dropped: no target took them, and they are not held any more",
                self._dropped,
                self.source.described,
            )
            self._dropped = 0
        if not self._letters:
            host.undelivered.leave(self)
            settling.timers.cancel(self._timer)
            self._timer = None
            if self._said and not self.ready:
                self._said = ""
                log.info("the dead letters of %s wait no longer", self.source.described)
            return
        host.undelivered.join(self)
        if self._timer is None:
            self._timer = settling.later(self._pause_s, self._time_is_over)
        if not self._said and settling.now >= self._logged_at + LOG_PAUSE_S:
            self._said, self._logged_at = self.why, settling.now
            log.warning("dead letters of %s wait: %s", self.source.described, self._said)

    # The end.

    def give_up(self) -> None:
        """Give all dead letters to the targets that take them now, and drop the others: their queue is deleted."""
        self.route_again()
        self._end_seeking()
        while self.ready or self._letters:
            self._again = True
            self._load_head()
            self.dispatch()

    def let_go(self) -> None:
        super().let_go()
        self._letters.clear()
        self._parted.clear()

    def closed(self) -> None:
        """Drop all dead letters, as their queue is deleted."""
        if count := self.count:
            log.warning("%d dead letters that waited are deleted with %s", count, self.source.described)
        self.deleted = True
        self._end_seeking()
        self._parted.clear()
        self.purge()
        for letter in self._letters:
            self.forget((letter.delivery,))
        self._letters.clear()
        self.in_hand = self.in_hand_bytes = 0
        self.virtual_host.undelivered.leave(self)
        self.settling.timers.cancel(self._timer)
        self._timer = None


def noted(message: Message, notes: Notes) -> Message:
    """Return a message with other notes, and without a time to live or one before which it is not ready."""
    facts = message.facts
    if facts.ttl_ms is not None or facts.due_ms:
        facts = facts.without_ttl()
    return Message(
        message.encoding, message.exchange, message.key, message.properties, message.body, facts, notes
    )


def with_reached(notes: Notes, reached: tuple[tuple[bool, str], ...]) -> Notes:
    """Return notes with these names of what a dead letter has reached."""
    copy = notes.copy()
    copy.reached = reached
    return copy


def without_reached(notes: Notes) -> Notes:
    return with_reached(notes, ()) if notes.reached else notes
