"""Rounds in which a node lives on: it takes over a backlog, and is not restarted before all of that was compared.

    python -m tests.living.rounds --rounds 20 --seed 7
    python -m tests.living.rounds --engine postgres --seconds 12

Messages are published to several queues at once, so that these share the chunks in the store. Then the node is killed:
with PostgreSQL another one takes over, with SQLite the folder's next one starts. From there on queues are drained, one
after the other or at once, in every way that clients have, while others publish, so that chunks are merged while their
messages are read. Every copy that was confirmed has to come from that node, once, in order.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import attrs

from leveret.protocols.amqp091.codec import methods as m
from tests.crash.line import Line, Line091, wait_for
from tests.harness.postgres import Pair, programs
from tests.living import planted
from tests.living.books import Books, damage_in
from tests.living.bulk import Archiver, BulkReader, LeaseReader, Read, StreamReader
from tests.living.clients import CHANNEL, Client, Consumer, PickyConsumer, Publisher, Selector
from tests.living.plan import ASIDE, EXCHANGE, HEIRS, RANKED, SHUFFLED, STREAM, Plan
from tests.living.worlds import PostgresWorld, SqliteWorld, World

ENGINES: Final = ("postgres", "sqlite")
SECONDS: Final = 6.0  # for which the first node is published to,
MESSAGES: Final = 20_000  # unless it has so many of these before
STAGE_QUIET_S: Final = 2.0  # without a message that a group of queues still has to give: the next one begins
QUIET_S: Final = 40.0  # without anything that comes: what is missing is not coming any more
EMPTY_S: Final = 1.0  # the same, if the node says before and after it that nothing waits in its queues
ARCHIVES_MAX: Final = 10  # runs
LOOK_S: Final = 0.05  # between looks at what has come in other threads
HOLDING: Final = "plain"  # the queue of which a consumer has messages when its node is killed
SELECTORS: Final = ("publisher LIKE '%.a'", "publisher LIKE '%.b'")
COMPLAINTS_MAX: Final = 12  # shown of a round


class Round:
    """One node that is killed, one that lives on, and what clients see of both."""

    def __init__(self, folder: Path, plan: Plan, chance: random.Random) -> None:
        self.plan = plan
        self.books = Books(SHUFFLED, RANKED)
        self._folder = folder
        self._chance = chance
        self._clients: list[Client] = []
        self._early = 0  # messages that the first node has got; later ones are as many, at most
        self._readers: list[BulkReader] = []
        self._archiver: Archiver | None = None
        self._inbox: SimpleQueue[Read] = SimpleQueue()

    def run(self, world: World, seconds: float, messages: int) -> None:
        """Fill the queues, have the next node live, and drain them; the books then tell what is wrong.

        They are filled for some seconds, or with about so many messages each, if these come first.
        """
        try:
            self._declare(world)
            self._fill(world, seconds, messages)
            world.succeed()
            self.books.survived()
            self._live(world)
            self.books.close(world.log, self._waiting(world))
        finally:
            for client in self._clients:
                client.line.drop()
            for reader in self._readers:
                reader.stop()
            if self._archiver is not None:
                self._archiver.kill()

    # The node that is killed.

    def _declare(self, world: World) -> None:
        line = Line091(world.amqp)
        line.channel(CHANNEL)
        for name, arguments in self.plan.declared.items():
            line.call(CHANNEL, m.QueueDeclare(name, durable=True, arguments=arguments))
        for name in self.plan.queues:
            line.call(CHANNEL, m.QueueBind(name, EXCHANGE))
        line.drop()

    def _fill(self, world: World, seconds: float, messages: int) -> None:
        plan = self.plan
        publisher = self._publisher(world, "early", (EXCHANGE, ""), plan.targets, plan.window, messages)
        if plan.is_holding:
            self._clients.append(Consumer(world.amqp, self.books, self._chance, HOLDING, is_holding=True))
        end = time.monotonic() + seconds
        self._go_on(lambda: time.monotonic() > end or publisher.is_over)
        publisher.stop()
        self._go_on(lambda: publisher.is_confirmed)
        self._early = publisher.published
        for client in self._clients:
            client.line.drop()
        self._clients.clear()

    # The node that lives.

    def _live(self, world: World) -> None:
        plan, early = self.plan, self._early
        aside = self._publisher(world, "aside", ("", ASIDE), [ASIDE], 1, max(early, plan.merging))
        publishers = [aside]
        if plan.has_more:
            late = self._publisher(world, "late", (EXCHANGE, ""), plan.targets, plan.window, early)
            publishers.append(late)
        if STREAM in plan.queues:
            unread: SimpleQueue[Read] = SimpleQueue()  # one of the readers is there to read, and nothing else
            self._readers += [StreamReader(world.http, STREAM, inbox) for inbox in (self._inbox, unread)]
        self._go_on(lambda: aside.confirmed >= plan.merging)
        for group in plan.groups:
            for queue in group:
                self._read(world, queue)
            self._drain(group)
        for publisher in publishers:
            publisher.stop()
        self._go_on(lambda: all(each.is_confirmed for each in publishers))
        self._consume(world, ASIDE)
        self._finish(world)

    def _publisher(
        self,
        world: World,
        name: str,
        address: tuple[str, str],
        targets: Sequence[str],
        window: int,
        messages_max: int,
    ) -> Publisher:
        made = Publisher(
            world.amqp,
            self.books,
            self._chance,
            name,
            address,
            targets,
            window,
            self.plan.sizes,
            messages_max,
        )
        self._clients.append(made)
        return made

    def _read(self, world: World, queue: str) -> None:
        """Have what is in a queue taken out of it, in the way that its name says."""
        if queue == "leased":
            self._readers.append(LeaseReader(world.http, queue, self._inbox))
        elif queue == "lake":
            self._archiver = Archiver(world.http, queue, self._folder)
            self._archiver.begin()
        elif queue == "selected":
            self._clients += [Selector(world.amqp, self.books, queue, each) for each in SELECTORS]
        elif queue == "work":
            self._clients.append(PickyConsumer(world.amqp, self.books, self._chance, queue, HEIRS[queue]))
            self._consume(world, HEIRS[queue])
        else:
            self._consume(world, HEIRS.get(queue, queue))

    def _consume(self, world: World, queue: str) -> None:
        self._clients.append(Consumer(world.amqp, self.books, self._chance, queue))

    def _drain(self, group: Sequence[str]) -> None:
        """Wait until what is in these queues now has come, or no more of that comes."""
        names = {*group} - {"lake"}  # its table is read at the end
        books = self.books
        books.wanted = {*books.missing({HEIRS["brief"] if each == "brief" else each for each in names})}
        left, since = len(books.wanted), time.monotonic()

        def is_over() -> bool:
            nonlocal left, since
            if len(books.wanted) < left:
                left, since = len(books.wanted), time.monotonic()
            return not books.wanted or time.monotonic() - since > STAGE_QUIET_S

        self._go_on(is_over)

    def _finish(self, world: World) -> None:
        """Wait until everything has come, or nothing comes any more."""
        if self._archiver is not None:
            self._archive(world, self._archiver)
        for reader in self._readers:
            reader.stop()
        self._go_on(lambda: not any(each.is_alive for each in self._readers))
        for reader in self._readers:
            reader.join()
            if reader.failure is not None:
                raise reader.failure
        self._take_in()
        self._go_on(self._end(world))

    def _archive(self, world: World, archiver: Archiver) -> None:
        """Have the run come to its end, and others take what has come meanwhile."""
        for _ in range(ARCHIVES_MAX):
            self._go_on(lambda: archiver.is_done)
            archiver.check()
            if not self._waiting(world)[archiver.queue]:
                break
            archiver.begin()
        for read in archiver.read():
            self._inbox.put(read)

    def _end(self, world: World) -> Callable[[], bool]:
        """Return what tells whether all has come, or nothing more comes, as arrivals tell."""
        books = self.books
        books.wanted = {*books.missing()}
        arrivals, since, looked_at = -1, 0.0, 0.0
        was_empty = False  # when that was looked at, since the last arrival

        def is_over() -> bool:
            nonlocal arrivals, since, looked_at, was_empty
            now = time.monotonic()
            if books.arrivals > arrivals:
                arrivals, since, looked_at, was_empty = books.arrivals, now, now, False
            if not books.wanted:
                books.wanted = {*books.missing()}  # what was given back or has moved comes again
                return not books.wanted
            if now - looked_at < EMPTY_S:
                return False
            is_empty = not any(self._waiting(world).values())
            gives_up = now - since > QUIET_S or (was_empty and is_empty)
            looked_at, was_empty = time.monotonic(), is_empty
            return gives_up

        return is_over

    def _waiting(self, world: World) -> dict[str, int]:
        """Return how many messages wait in each queue, as the node says."""
        line = Line091(world.amqp)
        line.channel(CHANNEL)
        found: dict[str, int] = {}
        for name in self.plan.declared:
            if name != STREAM:
                declared = line.call(CHANNEL, m.QueueDeclare(name, passive=True))
                assert isinstance(declared, m.QueueDeclareOk)
                found[name] = declared.message_count
        line.drop()
        return found

    # What comes.

    def _go_on(self, until: Callable[[], bool]) -> None:
        """Act and listen until it holds. Raises AssertionError where a client was let go, or nothing comes at all."""
        seen, since = -1, 0.0
        while not until():
            acted = [client.act() for client in self._clients]
            lines: list[Line] = [client.line for client in self._clients]
            came = [line.pump() for line in lines]
            assert not any(line.ended for line in lines), "the node has ended a connection"
            took = self._take_in()
            now, books = time.monotonic(), self.books
            if books.arrivals + books.confirms > seen:
                seen, since = books.arrivals + books.confirms, now
            assert now - since < 2 * QUIET_S, "neither messages nor confirms come any more"
            if not (any(acted) or any(came) or took):
                wait_for(lines, LOOK_S)

    def _take_in(self) -> bool:
        """Note what other threads have read."""
        took = False
        with contextlib.suppress(Empty):
            while True:
                read = self._inbox.get_nowait()
                took = True
                if (copy := self.books.came(read.queue, read.body, read.redelivered)) is not None:
                    self.books.settled([copy])
        return took


@attrs.frozen
class Outcome:
    """What a round has found."""

    plan: Plan
    copies: int
    complaints: list[str]
    log: str


class Rounds:
    """Rounds that follow each other, on one pair of databases."""

    def __init__(self, pair: Pair | None, mistakes: Sequence[str] = ()) -> None:
        """`mistakes` are planted in the nodes that live on."""
        self._pair = pair
        self._mistakes = mistakes

    def run(
        self, folder: Path, plan: Plan, chance: random.Random, seconds: float, messages: int = MESSAGES
    ) -> Outcome:
        """Run one round in a new folder."""
        folder.mkdir()
        world = self._world(folder, plan)
        try:
            found = Round(folder, plan, chance)
            try:
                found.run(world, seconds, messages)
            except Exception as error:
                error.add_note(
                    "\n".join([str(plan), *damage_in(world.log), *found.books.complaints[:COMPLAINTS_MAX]])
                )
                raise
            return Outcome(plan, found.books.copies, found.books.complaints, world.log)
        finally:
            world.end()

    def _world(self, folder: Path, plan: Plan) -> World:
        first = planted.program(*["hoarding"] * plan.is_hoarding)
        living = planted.program(*["eager"] * plan.is_eager, *["slow"] * plan.is_slow, *self._mistakes)
        if plan.engine == "sqlite":
            return SqliteWorld(folder, first, living, plan.is_poor)
        assert self._pair is not None
        return PostgresWorld(folder, self._pair, first, living, plan.is_poor)


def plan_of(seed: int, engine: str) -> Plan:
    return Plan.chosen(random.Random(seed), engine)


@contextlib.contextmanager
def pair_for(engines: Sequence[str]) -> Iterator[Pair | None]:
    """Yield a pair of databases, if an engine needs one."""
    if "postgres" not in engines:
        yield None
        return
    pair = Pair.made()
    try:
        yield pair
    finally:
        pair.end()


def main() -> int:
    options = _options()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    engines = ENGINES if options.engine == "both" else (options.engine,)
    if "postgres" in engines and programs() is None:
        raise SystemExit("needs PostgreSQL's servers; without them: --engine sqlite")
    copies, wrong, started = 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leveret-living-") as folder, pair_for(engines) as pair:
        rounds = Rounds(pair, options.planted)
        for number in range(options.rounds):
            plan = plan_of(seed + number, engines[number % len(engines)])
            print(f"round {number + 1} of {options.rounds}, seed {seed + number}, {plan}", flush=True)
            found = told(rounds, Path(folder) / str(number), plan, seed + number, options.seconds)
            copies += found.copies
            wrong += bool(found.complaints)
    took_s = time.monotonic() - started
    print(f"{options.rounds} rounds, {copies} copies, {wrong} rounds found something, {took_s:.0f} s")
    return 1 if wrong else 0


def told(rounds: Rounds, folder: Path, plan: Plan, seed: int, seconds: float) -> Outcome:
    """Run a round, and print what it has found, and how to find it again."""
    started = time.monotonic()
    try:
        found = rounds.run(folder, plan, random.Random(seed), seconds)
    except Exception as error:
        error.add_note(again(plan, seed, seconds))
        raise
    took_s = time.monotonic() - started
    print(f"    {found.copies} copies, {len(found.complaints)} complaints, {took_s:.0f} s", flush=True)
    if found.complaints:
        print(*found.complaints[:COMPLAINTS_MAX], again(plan, seed, seconds), sep="\n", flush=True)
    shutil.rmtree(folder)
    return found


def again(plan: Plan, seed: int, seconds: float) -> str:
    said = f"--rounds 1 --seed {seed} --engine {plan.engine} --seconds {seconds:g}"
    return f"again: python -m tests.living.rounds {said}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--seed", type=int, help="what chance decides, of the first round; default: something new"
    )
    parser.add_argument("--engine", choices=(*ENGINES, "both"), default="both", help="default: both in turn")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="for which the first node is published to"
    )
    parser.add_argument(
        "--planted", choices=planted.PLANTED, nargs="*", default=(), help="a mistake in the nodes that live"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
