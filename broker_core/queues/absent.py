"""Unanswered messages of a queue whose bodies are on disk only, because memory is short.

    with a consumer, in memory ── put_away ──> with a consumer, on disk ── accepted ──> gone
                                                              └─ given back ──> read ──> given back

A delivery keeps its place with the consumer; its message is an `AbsentMessage`, of which nothing that came from the
publisher can be read. An acceptance needs no more. For any other answer the message is read first, many at a time, and
the answer counts then: until that is done the queue delivers nothing, so that the order of messages stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from leveret.message import AbsentMessage
from leveret.queues.backlog import PAGE_MESSAGES, PAGE_OCTETS, POSITION, page_of

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.durability import Durability, Page, Stored
    from leveret.queues.work_queue import WorkQueue

Answer: TypeAlias = "Callable[[Delivery], None]"


class AbsentMessages:
    """The unanswered messages of one queue that are on disk only."""

    __slots__ = (
        "_answers",
        "_is_answering",
        "_journal",
        "_last",
        "_last_answer",
        "_queue",
        "_reading",
        "messages",
        "octets",
    )

    def __init__(self, queue: WorkQueue, journal: Durability) -> None:
        self.messages = 0  # that are on disk only
        self.octets = 0  # of their bodies
        self._queue = queue
        self._journal = journal
        self._answers: list[tuple[Delivery, Answer]] = []  # that wait for messages, in order
        self._reading = 0  # how many of them are being read
        self._is_answering = False
        # The last message put away, and the last answer with what was given: the next are often alike.
        self._last: AbsentMessage | None = None
        self._last_answer: tuple[Answer, Callable[..., None], tuple[object, ...]] | None = None

    @property
    def answers(self) -> int:
        """The number of answers that wait for their messages."""
        return len(self._answers)

    # To the disk.

    def put_away(self, deliveries: Iterable[Delivery]) -> None:
        """Forget the bodies of those that the store has."""
        written = self._journal.written
        for delivery in deliveries:
            message = delivery.message
            if not 0 < delivery.stored <= written or isinstance(message, AbsentMessage):
                continue
            if self._last is None or not self._last.stands_for(message):
                self._last = AbsentMessage(message)
            delivery.message = self._last
            self.octets += message.size
            self.messages += 1

    # Back again.

    def accepted(self, deliveries: Iterable[Delivery]) -> None:
        """Count off those that are on disk only. Called before they are accepted."""
        for delivery in deliveries:
            if isinstance(delivery.message, AbsentMessage):
                self._here(delivery)

    def is_gone(self, delivery: Delivery) -> bool:
        """Return whether a message is on disk only, and count it off: its queue is deleted."""
        if not isinstance(delivery.message, AbsentMessage):
            return False
        self._here(delivery)
        return True

    def delays(self, entry: Delivery, answer: Callable[..., None], *terms: object) -> bool:
        is_behind = bool(self._answers) and not self._is_answering
        if not (is_behind or isinstance(entry.message, AbsentMessage)):
            return False
        if self._last_answer is None or self._last_answer[1:] != (answer, terms):
            self._last_answer = (lambda delivery: answer(delivery, *terms)), answer, terms
        self._answers.append((entry, self._last_answer[0]))
        self._read_on()
        return True

    def bring(self, deliveries: Iterable[Delivery]) -> None:
        """Read messages at once. Those that cannot be read stay away."""
        lacking = sorted(lacking_of(deliveries), key=POSITION)
        if lacking:
            page = page_of(lacking, [delivery.stored for delivery in lacking])
            self._take_in(lacking, self._journal.fetch(self._queue, page))

    def give_up(self) -> None:
        """Drop the messages whose answers wait: their queue is deleted, and its messages with it."""
        answers, self._answers = self._answers, []
        self._reading = 0
        for delivery, _ in answers:
            self._drop(delivery)
            self._queue.forget((delivery,))

    def marked(self) -> Iterable[tuple[int, int]]:
        """Yield number and failed attempts of each message that is on its way back to the queue."""
        return ((delivery.stored, delivery.attempts) for delivery, _ in self._answers if delivery.stored > 0)

    def _read_on(self) -> None:
        """Have the messages of the next answers read."""
        if self._reading or not self._answers:
            return
        lacking: list[Delivery] = []
        octets = 0
        for delivery, _ in self._answers:
            self._reading += 1
            if isinstance(delivery.message, AbsentMessage):
                lacking.append(delivery)
                octets += delivery.message.size
            if octets >= PAGE_OCTETS or self._reading == PAGE_MESSAGES:
                break
        if not lacking:
            self._answer()
            return
        lacking.sort(key=POSITION)
        page = page_of(lacking, [delivery.stored for delivery in lacking])
        self._journal.fetch_soon(self._queue, page, lambda stored: self._arrived(page, lacking, stored))

    def _arrived(self, page: Page, lacking: Sequence[Delivery], stored: list[Stored]) -> None:
        if self._queue.deleted:
            return
        self._take_in(lacking, stored)
        if len(stored) < len(page):
            self._journal.missed(self._queue, page, stored)
        self._answer()

    def _answer(self) -> None:
        """Give the answers whose messages have been read."""
        answers, self._answers = self._answers[: self._reading], self._answers[self._reading :]
        self._reading, self._is_answering = 0, True
        try:
            for delivery, answer in answers:
                if isinstance(delivery.message, AbsentMessage):
                    self._drop(delivery)  # it cannot be read, and stays in the store
                else:
                    answer(delivery)
        finally:
            self._is_answering = False
        self._queue.touch()
        self._read_on()

    def _take_in(self, lacking: Iterable[Delivery], stored: Iterable[Stored]) -> None:
        messages = {number: message for number, _, _, message in stored}
        for delivery in lacking:
            message = messages.get(delivery.stored)
            if message is not None:
                self._here(delivery)
                delivery.message = message

    def _here(self, delivery: Delivery) -> None:
        self.messages -= 1
        self.octets -= delivery.message.size

    def _drop(self, delivery: Delivery) -> None:
        if isinstance(delivery.message, AbsentMessage):
            self._here(delivery)
        self._queue.answered((delivery,))
        self._queue.lost(1, delivery.message.size)


def put_away(queue: WorkQueue, deliveries: Iterable[Delivery]) -> None:
    """Keep the messages of unanswered deliveries of a queue on disk only, as far as the store has them.

    Nothing goes where somebody is told of messages that leave (`present`), or gets those that a deletion of the queue
    finds with consumers.
    """
    journal, absent = queue.journal, queue.absent
    if queue.deleted or not queue.may_lack or queue.present is not None or journal is None:
        return
    if queue.limits.alternate_exchange is not None:
        return
    if not isinstance(absent, AbsentMessages):
        absent = queue.absent = AbsentMessages(queue, journal)
    absent.put_away(deliveries)


def lacking_of(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return the deliveries whose messages are on disk only."""
    return [each for each in deliveries if isinstance(each.message, AbsentMessage)]
