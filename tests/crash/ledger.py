"""What clients know of a node, and what is wrong with what they find in it.

Clients tell the ledger what they ask for (a `Deed` each), what they are told, and what they are given; after
a restart they tell it everything that is in the queues. Only what was read from the node counts as promised.

Complaints begin with one word: LOST, BACK (answered, and that was safe), MISPLACED, TWICE, UNKNOWN, BYTES,
HALF, ORDER, FLAG (a redelivery that does not say so), COUNT, DEATH, OFFSET."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from .history import NOWHERE, THERE, Deed, History, out_of_order
from .messages import Found, Message, name_in


class Ledger:
    """The books of all clients of one node, over all its restarts.

    `dead_letters` says where the dead of a queue go. A queue in `spilling` sends its oldest there by itself.
    One in `counting` tells how often a message came back. In `shuffled` ones messages come in any order. What
    is in `streams` stays there, each at its offset."""

    def __init__(
        self,
        queues: Collection[str],
        dead_letters: Mapping[str, str] | None = None,
        spilling: Collection[str] = (),
        counting: Collection[str] = (),
        shuffled: Collection[str] = (),
        ranked: Mapping[str, int] | None = None,
        usual: Mapping[str, int] | None = None,
        streams: Collection[str] = (),
    ) -> None:
        self.queues = queues
        self.dead_letters = dead_letters or {}
        self.homes = {dead: home for home, dead in self.dead_letters.items()}
        self.spilling = spilling
        self.counting = counting
        self.shuffled = shuffled
        self.ranked = ranked or {}  # queues with priorities, and the highest of each
        self.usual = usual or {}  # the priority there of messages without one, if it is not 0
        self.streams = streams
        # the name of a message by its stream and where it is there
        self.offsets: dict[tuple[str, int], str] = {}
        self.messages: dict[str, Message] = {}  # by name
        self.copies: dict[tuple[str, str], History] = {}  # by the message's name and the queue that took it
        self.things: dict[tuple[str, str], History] = {}  # declared ones, by kind and name
        self.deeds: dict[str, list[Deed]] = {}  # since the last start, by connection
        self._implied: dict[str, deque[Deed]] = {}  # those of them that are safe when a later one is
        self.complaints: list[str] = []
        self._gone: set[tuple[str, str]] = set()  # copies that are not coming back
        self._purging: set[str] = set()  # queues of which that was asked, and not answered
        # by consumer, queue, publisher, priority
        self._newest: dict[tuple[str, str, str, int | None], int] = {}

    # What is asked for.

    def deed(self, line: str, text: str, implied: bool = False) -> Deed:
        """Something asked for on a connection; the order of these calls is that of the asking.

        `implied`: the node does not tell that it is safe, but when a later one is, so is this."""
        deeds = self.deeds.setdefault(line, [])
        deeds.append(deed := Deed(line, len(deeds), text))
        if implied:
            self._implied.setdefault(line, deque()).append(deed)
        return deed

    def prepared(self, message: Message) -> None:
        """It was sent, but is in no queue before something else happens (a commit)."""
        self.messages[message.name] = message

    def published(self, message: Message, queues: Iterable[str], deed: Deed) -> None:
        """It is on its way into these."""
        self.messages[message.name] = message
        for queue in queues:
            copy = self.copies[message.name, queue] = History(f"{message.name} of '{queue}'")
            copy.goes(queue, deed)
            if not message.persistent:
                deed.steps.clear()  # no promise: it does not outlive the node
            if queue in self.spilling:
                copy.goes(self.dead_letters[queue], None)
            if queue in self._purging:
                copy.goes(NOWHERE, None)

    def settled(self, copy: History, deed: Deed) -> None:
        """Its consumer has answered that it is done with it."""
        copy.holder = ""
        copy.goes(NOWHERE, deed)

    def died(self, copy: History, queue: str, deed: Deed) -> None:
        """Its consumer does not want it."""
        copy.holder = ""
        copy.goes(self.dead_letters.get(queue, NOWHERE), deed)

    def purging(self, queue: str, deed: Deed) -> None:
        """Everything that waits in a queue is to go; what is on its way there may go as well, or may not."""
        self._purging.add(queue)
        for copy in self.copies.values():
            if copy.place == queue and not copy.holder:
                copy.goes(NOWHERE, deed, promised=copy.least == len(copy.steps) - 1)

    def purged(self, queue: str) -> None:
        """The node has done it. What is published from here on stays."""
        self._purging.remove(queue)

    def thing(self, kind: str, name: str) -> History:
        """A queue, exchange or binding."""
        return self.things.setdefault((kind, name), History(f"{kind} '{name}'"))

    # What is told.

    def safe(self, deed: Deed) -> None:
        """The node said that a deed is safe, and by that some from before it, on the same connection."""
        deed.safe()
        implied = self._implied.get(deed.line)
        while implied and implied[0].number < deed.number:
            implied.popleft().safe()

    def refused(self, deed: Deed) -> None:
        """The node said that nothing of a deed has happened, or will."""
        for history, _ in deed.steps:
            history.stays(deed)
        deed.steps.clear()

    # What is given.

    def delivered(self, found: Found, consumer: str) -> History | None:
        """A consumer got this while the node runs: the copy, if there is one, is its from here on."""
        copy = self._copy(found)
        if copy is None:
            return None
        if copy.place != found.queue:
            self._complain(f"BACK: given again in '{found.queue}': {copy!r}")
        elif copy.holder:
            self._complain(f"TWICE: given to two at once: {copy!r}")
        self._check_flag(copy, found)
        if found.queue in self.counting and _count(found) != copy.failures_most:
            self._complain(
                f"COUNT: {_count(found)} failed deliveries instead of {copy.failures_most}: {copy!r}"
            )
        copy.given = found.queue
        copy.holder = consumer if found.queue not in self.streams else ""
        if not found.redelivered:
            self._check_newest(found, consumer)
        return copy

    def left(self, copies: Iterable[History], deed: Deed) -> None:
        """A consumer is gone with what it had, and that comes back."""
        for copy in copies:
            copy.comes_back(deed)

    # What is found after a restart.

    def restarted(self, closed: bool = False) -> None:
        """The node has ended. Whoever had something has it no more; what was not to last has not.

        `closed`: not suddenly, so that what was with consumers may have come back, and count that."""
        for (name, queue), copy in list(self.copies.items()):
            copy.holder = ""
            copy.failures_most += closed
            if not self.messages[name].persistent:
                self._forget(name, queue)
        self._newest.clear()
        self._purging.clear()

    def compare(self, contents: Mapping[str, list[Found]], things: Collection[tuple[str, str]]) -> None:
        """Everything that is in all the queues, and which of the declared things are there."""
        places: dict[tuple[str, str], list[str]] = {}
        for queue, waiting in contents.items():
            self._check_order(queue, waiting)
            for found in waiting:
                if (copy := self._copy(found)) is not None:
                    key = name_in(found.body), self.homes.get(queue, queue)
                    key = key if key in self.copies else (key[0], queue)
                    places.setdefault(key, []).append(queue)
                    self._check_flag(copy, found)
                    self._check_count(copy, found)
                    self._check_death(copy, found)
                    copy.given = queue
        for key, copy in list(self.copies.items()):
            self._compare(key, copy, places.get(key, []))
        for key, thing in self.things.items():
            for complaint in thing.turned_out(THERE if key in things else NOWHERE):
                self._complain(complaint)
        for deeds in self.deeds.values():
            for complaint in out_of_order(deeds):
                self._complain(complaint)
        self.deeds.clear()
        self._implied.clear()

    def _compare(self, key: tuple[str, str], copy: History, places: list[str]) -> None:
        if len(places) > 1:
            self._complain(f"TWICE: found in {places}: {copy!r}")
        place = places[0] if places else NOWHERE
        for complaint in copy.turned_out(place):
            self._complain(complaint)
        if place == NOWHERE:
            self._forget(*key)
        elif place in self.spilling:
            copy.goes(self.dead_letters[place], None)

    def _forget(self, name: str, queue: str) -> None:
        del self.copies[name, queue]
        self._gone.add((name, queue))

    def copy_of(self, found: Found) -> History | None:
        """The copy that this is, as far as its name says."""
        name = name_in(found.body)
        home = self.homes.get(found.queue, found.queue)
        return self.copies.get((name, home)) or self.copies.get((name, found.queue))

    def _copy(self, found: Found) -> History | None:
        """The copy that this is, if it is one, and whole."""
        name = name_in(found.body)
        message = self.messages.get(name)
        if message is None:
            return self._complain(f"UNKNOWN: {name!r} in '{found.queue}'")
        if message.body != found.body or not _same_properties(message, found):
            return self._complain(f"BYTES: {name} in '{found.queue}' is not what was published")
        if (copy := self.copy_of(found)) is not None:
            return copy
        if (name, self.homes.get(found.queue, found.queue)) in self._gone:
            return self._complain(f"BACK: {name} in '{found.queue}' was gone")
        return self._complain(f"UNKNOWN: {name} was never in '{found.queue}'")

    def _check_flag(self, copy: History, found: Found) -> None:
        if found.queue in self.streams:
            self._check_offset(found)
        elif copy.given == found.queue and not found.redelivered:
            self._complain(f"FLAG: {name_in(found.body)} in '{found.queue}' was read before")

    def _check_offset(self, found: Found) -> None:
        """An offset that was read once is never another message's."""
        offset = found.headers.get("x-stream-offset")
        assert isinstance(offset, int), found
        name = name_in(found.body)
        before = self.offsets.setdefault((found.queue, offset), name)
        if before != name:
            self._complain(f"OFFSET: {name} is at {offset} in '{found.queue}', where {before} was")

    def _check_count(self, copy: History, found: Found) -> None:
        if found.queue in self.counting:
            for complaint in copy.failures_were(_count(found)):
                self._complain(complaint)

    def _check_death(self, copy: History, found: Found) -> None:
        home = self.homes.get(found.queue)
        deaths = found.headers.get("x-death")
        if home is None:
            if deaths is not None:
                self._complain(f"DEATH: it has died, and is in '{found.queue}': {copy!r}")
            return
        reason = "maxlen" if home in self.spilling else "rejected"
        last = deaths[0] if isinstance(deaths, list) and len(deaths) == 1 else None
        if not isinstance(last, dict) or (last["queue"], last["reason"], last["count"]) != (home, reason, 1):
            self._complain(f"DEATH: {deaths} instead of one in '{home}', {reason}: {copy!r}")

    def _check_newest(self, found: Found, consumer: str) -> None:
        message = self.messages[name_in(found.body)]
        key = consumer, found.queue, message.publisher, message.priority
        if message.number <= self._newest.get(key, -1):
            self._complain(f"ORDER: {message.name} in '{found.queue}' after {self._newest[key]}")
        self._newest[key] = message.number

    def _check_order(self, queue: str, waiting: list[Found]) -> None:
        """The first from each publisher first, and higher priorities before."""
        if queue in self.shuffled:
            return
        highest = self.ranked.get(queue, 0)
        before, newest = highest, {}
        for found in waiting:
            message = self.messages.get(name_in(found.body))
            if message is None:
                continue
            priority = message.priority
            rank = min(self.usual.get(queue, 0) if priority is None else priority, highest)
            if rank > before:
                self._complain(f"ORDER: {message.name} in '{queue}' behind messages of lower priority")
            key = message.publisher, rank
            if message.number <= newest.get(key, -1):
                self._complain(f"ORDER: {message.name} in '{queue}' behind number {newest[key]}")
            before, newest[key] = rank, message.number

    def _complain(self, text: str) -> None:
        self.complaints.append(text)


def _count(found: Found) -> int:
    count = found.headers.get("x-delivery-count", 0)
    assert isinstance(count, int)
    return count


def _same_properties(message: Message, found: Found) -> bool:
    """All that the publisher said is as he said it; what the broker adds has names of its own."""
    said, got = message.properties, found.properties
    headers = {key: value for key, value in found.headers.items() if not key.startswith("x-")}
    has_died = "x-death" in found.headers
    return (
        headers == said.headers
        and got.delivery_mode == said.delivery_mode
        and got.priority == said.priority
        and (got.expiration == said.expiration or has_died)
        and got.message_id == said.message_id
    )


def kinds(complaints: Iterable[str]) -> Iterator[str]:
    """The first word of each."""
    for complaint in complaints:
        yield complaint.partition(" ")[0].rstrip(":")
