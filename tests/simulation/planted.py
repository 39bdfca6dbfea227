"""Mistakes to plant in the broker, each of which a simulation has to find."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import attrs

from leveret.catalogue import OPERATOR_POLICY, POLICY, QUEUE, Kept
from leveret.clock import NEVER
from leveret.delivery import Consumer, Delivery
from leveret.durable.chunk_state import ChunkState
from leveret.durable.journal import FlyingCommit, Journal
from leveret.durable.kinds.kind import Numbered
from leveret.durable.segment_log import SegmentLog
from leveret.durable.store import database, redo_log, writer
from leveret.durable.store.contract import Chunk, Commit
from leveret.durable.store.logged_changes import LoggedChunks
from leveret.durable.store.memory import MemoryStore
from leveret.durable.store.postgres.bodies import ChunkBodies
from leveret.durable.store.postgres.scratch import CachedSlices, Scratch
from leveret.durable.store.redo_log import RedoLog
from leveret.durable.store.segments import Segments
from leveret.durable.store.snapshot_reader import SnapshotReader
from leveret.durable.stored_catalogue import StoredCatalogue
from leveret.exchanges import exchange_type as exchange
from leveret.exchanges import routing
from leveret.features.leases.lease import Lease
from leveret.protocols.amqp091.broker import ack_timeouts
from leveret.protocols.amqp10.broker.transactions import Transactions
from leveret.protocols.mqtt.broker import retained
from leveret.protocols.mqtt.broker.answers import Answers
from leveret.protocols.mqtt.broker.consumer import QueueConsumer, Sending
from leveret.protocols.mqtt.broker.session import SHARED_PREFIX, Session, flights_of
from leveret.queues import backlog
from leveret.queues.held_dead_letters import HeldDeadLetters
from leveret.queues.lane import Lane
from leveret.queues.queue import AT_ONCE
from leveret.queues.schedule import Schedule
from leveret.queues.single_active_consumer import SingleActiveConsumer
from leveret.queues.work_queue import WorkQueue
from leveret.security.access import Access
from leveret.server.cluster.lease import OwnLease, Watch
from leveret.server.node.feeds import Feeds
from leveret.transaction import Publication, Transaction
from leveret.virtual_host import VirtualHost

from . import clustered
from .replacing import replaced


def confirm_early() -> Iterator[None]:
    """Publishers are told before their messages are on disk."""
    settle = Journal.settle

    def early(self: Journal, publishers: Sequence[Any]) -> None:
        for publisher in publishers:
            publisher.taken(publisher.mark())
        settle(self, ())

    with replaced(Journal, "settle", early):
        yield


def acks_not_written() -> Iterator[None]:
    """What is settled stays on the disk."""
    with replaced(Journal, "_settle_in", lambda self, commit: (self.settled.clear(), self._numbers.clear())):
        yield


def acks_ahead() -> Iterator[None]:
    """What is settled is written one commit too early, without what came with it."""
    append = Journal._closed

    def closed(self: Journal) -> FlyingCommit:
        flying = append(self)
        commit = flying.commit
        if not isinstance(self.store, MemoryStore):
            return flying
        ahead = Commit(commit.number)
        ahead.settled, ahead.dropped = commit.settled, commit.dropped
        self.store.content.take(ahead)
        commit.settled, commit.dropped = {}, []
        return flying

    with replaced(Journal, "_closed", closed):
        yield


def commit_given_up() -> Iterator[None]:
    """A commit that had no room is forgotten, and its publishers are told that all is well."""

    def given_up(self: Journal, now: float) -> None:
        for flying in list(self._flying):
            self._on_durable(flying.commit.number)

    with replaced(Journal, "_try_again", given_up):
        yield


def unflagged_after_start() -> Iterator[None]:
    """What a start finds on the disk counts as never delivered."""
    read_back = backlog.read_back

    def forgetful(*arguments: Any) -> list[Delivery]:
        found = read_back(*arguments)
        for delivery in found:
            delivery.redelivered = False
        return found

    with replaced(backlog, "read_back", forgetful):
        yield


def unflagged_requeue() -> Iterator[None]:
    """What comes back to a queue is given again as if it were new."""
    put_back = Lane.put_back

    def forgetful(self: Lane, delivery: Delivery) -> None:
        delivery.redelivered = False
        put_back(self, delivery)

    with replaced(Lane, "put_back", forgetful):
        yield


def requeued_last() -> Iterator[None]:
    """What comes back to a queue waits behind all others."""
    with replaced(Lane, "put_back", lambda self, delivery: self.arrivals.append(delivery)):
        yield


def rejected_and_gone() -> Iterator[None]:
    """Rejected messages become no dead letters."""
    with replaced(WorkQueue, "reject", WorkQueue.accept):
        yield


def expired_and_gone() -> Iterator[None]:
    """Messages that expire become no dead letters."""

    def gone(self: WorkQueue, delivery: Delivery) -> None:
        self.left(delivery)
        self.unsettled += 1
        self.accept(delivery)

    with replaced(WorkQueue, "expire", gone):
        yield


def one_too_many() -> Iterator[None]:
    """Requeued messages are in their queue twice."""
    release = WorkQueue.release

    def twice(self: WorkQueue, delivery: Delivery, *rest: Any, **more: Any) -> None:
        release(self, delivery, *rest, **more)
        self.push(delivery.message)

    with replaced(WorkQueue, "release", twice):
        yield


def order_reversed() -> Iterator[None]:
    """What is read from the disk is lined up by the wrong end."""
    taken_in = backlog.Backlog._taken_in

    def turned(self: backlog.Backlog, *arguments: Any) -> list[Delivery]:
        return taken_in(self, *arguments)[::-1]

    with replaced(backlog.Backlog, "_taken_in", turned):
        yield


def retry_in_two() -> Iterator[None]:
    """Half of the chunks of a commit are on disk although the commit is not."""
    closed = Journal._closed

    def halved(self: Journal) -> FlyingCommit:
        flying = closed(self)
        commit = flying.commit
        if commit.chunks and isinstance(self.store, MemoryStore):
            part = Commit(commit.number)
            part.chunks = commit.chunks[:1]
            self.store.content.take(part)
            commit.chunks = commit.chunks[1:]
        return flying

    with replaced(Journal, "_closed", halved):
        yield


def told_together() -> Iterator[None]:
    """What is in the second of two commits in flight is confirmed with the first."""
    on_durable = Journal._on_durable

    def both(self: Journal, number: int) -> None:
        if self._flying and self._flying[0].commit.number == number:
            following = self._flying[1:]
            on_durable(self, number)
            for each in following:
                on_durable(self, each.commit.number)

    with replaced(Journal, "_on_durable", both):
        yield


# Disks.


def log_not_synced() -> Iterator[None]:
    """SQLite does not sync its log with each commit."""
    connected = database.connected

    def hasty(file: Path, write: bool = True) -> sqlite3.Connection:
        connection = connected(file, write)
        connection.execute("pragma synchronous=normal")
        return connection

    with replaced(database, "connected", hasty):
        yield


def redo_log_not_synced() -> Iterator[None]:
    """The redo log is not synced with each commit."""
    with replaced(redo_log, "sync_file", lambda file: None):
        yield


def redo_log_not_ended() -> Iterator[None]:
    """The redo log is written to the database, and its round goes on all the same."""

    def forgetful(self: RedoLog) -> None:
        self.octets = 0

    with replaced(RedoLog, "end", forgetful):
        yield


def removed_first() -> Iterator[None]:
    """An object is removed before the messages of the same commit are written."""
    with replaced(writer, "_late", lambda commit: {}):
        yield


def segments_not_synced() -> Iterator[None]:
    """The files of streams are not synced."""
    build = Segments.__init__

    def hasty(self: Segments, folder: Path) -> None:
        build(self, folder)
        self.syncs = False

    with replaced(Segments, "__init__", hasty):
        yield


def rewritten_and_lost() -> Iterator[None]:
    """Rewriting chunks leaves out the first message that is still needed."""
    needed = ChunkState.needed

    def forgetful(self: ChunkState) -> Any:
        found = needed(self)
        return found[1:]

    with replaced(ChunkState, "needed", forgetful):
        yield


def paged_out_too_early() -> Iterator[None]:
    """Messages leave memory before they are on disk."""
    landed = Journal._landed

    def hasty(self: Journal, number: int) -> None:
        landed(self, number)
        self.written = 1 << 60

    with replaced(Journal, "_landed", hasty):
        yield


# Streams, leases.


def read_before_it_is_safe() -> Iterator[None]:
    """Readers of a stream get what is not on disk yet."""
    append = SegmentLog.append

    def hasty(self: SegmentLog, *arguments: Any) -> None:
        append(self, *arguments)
        self.committed = self.next

    with replaced(SegmentLog, "append", hasty):
        yield


def one_more_settled() -> Iterator[None]:
    """A lease settles one message more than its reader said."""
    settle = Lease.settle
    with replaced(
        Lease, "settle", lambda self, until: settle(self, min(until + 1, self.first + self.messages))
    ):
        yield


def reserved_and_kept() -> Iterator[None]:
    """What a lease has stays in the queue's part of the store, too."""
    take = Lease.take

    def keeping(self: Lease, deliveries: list[Delivery]) -> int:
        with replaced(WorkQueue, "forget", lambda self, deliveries: None):
            return take(self, deliveries)

    with replaced(Lease, "take", keeping):
        yield


def released_last() -> Iterator[None]:
    """What a lease gives back waits behind all others."""
    take_back = WorkQueue.take_back

    def behind(self: WorkQueue, delivery: Delivery) -> None:
        delivery.position = self.position
        self.go_on_from(self.position + 1)
        take_back(self, delivery)

    with replaced(WorkQueue, "take_back", behind):
        yield


# Transactions.


def published_before_commit() -> Iterator[None]:
    """What is published in a transaction is in its queues at once."""

    def hold(self: Transaction, give: Callable[[], bool], octets: int) -> None:
        give()

    with replaced(Transaction, "hold", hold):
        yield


def rolled_forward() -> Iterator[None]:
    """A transaction that is rolled back is carried out."""
    rollback = Transaction.rollback

    def commit(self: Transaction) -> None:
        publishes = list(self._publishes)
        rollback(self)
        for give in publishes:
            give()

    def committed(self: Transaction) -> int:
        for give in self._publishes:
            give()
        rollback(self)
        return 0

    with replaced(Transaction, "rollback", commit), replaced(Transaction, "commit", committed):
        yield


def settled_before_commit() -> Iterator[None]:
    """What is answered in a transaction is settled at once."""
    with replaced(Transaction, "settle", lambda self, outcome: outcome()):
        yield


def settled_all_the_same() -> Iterator[None]:
    """Answers of a transaction that is rolled back are carried out."""
    rollback = Transaction.rollback

    def settling(self: Transaction) -> None:
        outcomes = list(self._outcomes)
        rollback(self)
        for outcome in outcomes:
            outcome()

    def committed(self: Transaction) -> int:
        refused = sum(not give() for give in self._publishes)
        settling(self)
        return refused

    with replaced(Transaction, "rollback", settling), replaced(Transaction, "commit", committed):
        yield


def settled_and_forgotten() -> Iterator[None]:
    """What a receiver has settled in a transaction that is rolled back belongs to nobody."""
    with replaced(
        Transactions, "_roll_back", lambda self, work: (work.tx.rollback(), self._let_go(work), 0)[-1]
    ):
        yield


def settled_in_another_commit() -> Iterator[None]:
    """What a transaction settles is written before what it publishes."""
    give = Transaction.commit

    def commit(self: Transaction) -> int:
        outcomes, self._outcomes = self._outcomes, []
        for outcome in outcomes:
            outcome()
        for found, _ in self.routes[:1]:
            journal = found.queues[0].virtual_host.broker.journal
            assert journal is not None
            journal.holds = True
            journal.settle(())
        return give(self)

    with replaced(Transaction, "commit", commit):
        yield


def commit_answered_early() -> Iterator[None]:
    """The answer to a commit does not wait for the disk."""

    def ends(self: Feeds, transport: object) -> None:
        self._journal.holds = False

    with replaced(Feeds, "ends", ends):
        yield


# Times.


def delays_not_written() -> Iterator[None]:
    """What waits for a time is ready after a start."""
    with replaced(Schedule, "_record", lambda self, delivery, due_ms: None):
        yield


def delayed_for_good() -> Iterator[None]:
    """What waits for a time is never ready."""
    with replaced(Schedule, "_watch", lambda self: None):
        yield


def retried_at_once() -> Iterator[None]:
    """What comes back to a queue with a back-off is ready at once."""
    with replaced(WorkQueue, "due_after", lambda self, attempts, is_failure: AT_ONCE):
        yield


def times_not_recovered() -> Iterator[None]:
    """What a start finds on the disk does not expire any more."""
    stored = Journal._stored

    def timeless(self: Journal, *arguments: Any) -> Any:
        return [
            (number, position, NEVER, message) for number, position, _, message in stored(self, *arguments)
        ]

    with replaced(Journal, "_stored", timeless):
        yield


# Dead letters, consumers, permissions, plug-ins, memory.


def dead_letters_held_for_good() -> Iterator[None]:
    """Dead letters that are to be kept until they have arrived are not sent."""
    with replaced(HeldDeadLetters, "dispatch", lambda self: None):
        yield


def dead_letters_held_and_sent() -> Iterator[None]:
    """Dead letters that have arrived are kept as well."""
    with replaced(HeldDeadLetters, "forget", lambda self, deliveries: None):
        yield


def permission_remembered() -> Iterator[None]:
    """Whoever was permitted to publish once may do so for good."""

    def changed(self: Access) -> None: ...

    with replaced(Access, "_changed", changed):
        yield


def prefetch_doubled() -> Iterator[None]:
    """Consumers get twice what they have asked for."""
    build = Consumer.__init__

    def generous(self: Consumer, *arguments: Any, **more: Any) -> None:
        build(self, *arguments, **more)
        if self.credit < 1000:
            self.credit *= 2

    with replaced(Consumer, "__init__", generous):
        yield


def exits_not_caught() -> Iterator[None]:
    """A plug-in that wants to end the process does so."""
    with (
        replaced(routing, "PLUGIN_MISTAKES", (Exception,)),
        replaced(exchange, "PLUGIN_MISTAKES", (Exception,)),
    ):
        yield


# Queues that are full, that a policy bounds, and that come and go.


def dead_letters_without_room() -> Iterator[None]:
    """Dead letters that are to be kept until they have arrived are dropped where there is no room for them."""
    give = HeldDeadLetters._give

    def given(self: HeldDeadLetters, *arguments: Any) -> bool:
        give(self, *arguments)
        return True

    with replaced(HeldDeadLetters, "_give", given):
        yield


def room_unnoticed() -> Iterator[None]:
    """Dead letters that wait for room do not hear of it."""
    with replaced(HeldDeadLetters, "wake", lambda self: None):
        yield


def held_unwritten() -> Iterator[None]:
    """Dead letters that wait for room have no place on the disk."""
    give_number = StoredCatalogue.give_number

    def to_others(self: StoredCatalogue, thing: Numbered) -> None:
        if not isinstance(thing, HeldDeadLetters):
            give_number(self, thing)

    with replaced(StoredCatalogue, "give_number", to_others):
        yield


def policy_for_new_queues() -> Iterator[None]:
    """A policy holds only for queues that are declared after it."""
    with replaced(VirtualHost, "policy_steps", lambda self: iter(())):
        yield


def policy_unwritten() -> Iterator[None]:
    """A policy that was changed is what it was before, after a start."""
    keep = StoredCatalogue.keep

    def keep_others(self: StoredCatalogue, thing: Kept) -> None:
        if thing.stored_as[0] not in (POLICY, OPERATOR_POLICY):
            keep(self, thing)

    with replaced(StoredCatalogue, "keep", keep_others):
        yield


def one_over_the_limit() -> Iterator[None]:
    """A queue keeps one message more than its policy says."""
    over_limit = WorkQueue.over_limit
    with replaced(WorkQueue, "over_limit", lambda self, more=0, octets=0: over_limit(self, more - 1, octets)):
        yield


def queue_not_forgotten() -> Iterator[None]:
    """A queue that was deleted is there again after a start."""
    forget = StoredCatalogue.forget

    def forget_others(self: StoredCatalogue, thing: Kept) -> None:
        if thing.stored_as[0] != QUEUE:
            forget(self, thing)

    with replaced(StoredCatalogue, "forget", forget_others):
        yield


# Clusters.


def lease_for_good() -> Iterator[None]:
    """A node that hears nothing of the database goes on with its clients."""
    with replaced(OwnLease, "has_lapsed", lambda self, now: False):
        yield


def impatient() -> Iterator[None]:
    """A node that stands by waits half as long as the lease of the other one lasts."""
    build = Watch.__init__
    with replaced(Watch, "__init__", lambda self, node, ttl_s: build(self, node, ttl_s / 2)):
        yield


def beats_unseen() -> Iterator[None]:
    """A node that stands by takes only commits for signs of life."""
    see = Watch.see
    with replaced(Watch, "see", lambda self, row, now: see(self, attrs.evolve(row, beat=0), now)):
        yield


def late_commits_count() -> Iterator[None]:
    """The database takes commits of an earlier epoch."""
    commit = clustered.Database.commit
    with replaced(
        clustered.Database, "commit", lambda self, epoch, written: commit(self, self.row.epoch, written)
    ):
        yield


def undeliverable_again() -> Iterator[None]:
    """A message is given again to a link at which it is undeliverable."""
    with replaced(WorkQueue, "avoid", lambda self, delivery, consumer: None):
        yield


# Readers.


def bodies_by_number() -> Iterator[None]:
    """Messages beside the local copy are found by the number of their chunk, which a merged one takes over."""
    put, kept = Scratch._put, CachedSlices._kept

    def putting(self: Scratch, keys: dict[int, int], made: Chunk) -> None:
        put(self, keys, made)
        named[self, made.first] = keys[made.first]

    def found(self: CachedSlices, first: int, start: int, length: int) -> bytes:
        key = named.get((self._scratch, first), 0)
        there = self._scratch.bodies.read(key, start, length)
        return kept(self, first, start, length) if there is None else there

    named: dict[tuple[Scratch, int], int] = {}
    with replaced(Scratch, "_put", putting), replaced(CachedSlices, "_kept", found):
        yield


def bodies_not_held() -> Iterator[None]:
    """Messages beside the local copy are deleted although a reader is there that began before."""
    with replaced(ChunkBodies, "held", lambda self: nullcontext()):
        yield


def filled_with_others() -> Iterator[None]:
    """What comes from the database is kept for a chunk that has been merged there, and not yet here."""
    with replaced(writer, "FILL", writer.FILL.replace("entries = ?", "? is not null")):
        yield


def looked_at_the_log_late() -> Iterator[None]:
    """A reader looks into the redo log after its moment of the database."""
    begin, find, not_looked = SnapshotReader._begin, SnapshotReader.find, LoggedChunks({}, {})

    def early(self: SnapshotReader) -> None:
        if isinstance(self, CachedSlices):  # which has no log
            begin(self)
            return
        self._recent = not_looked
        self._connection.execute("begin")
        self._connection.execute("select first from chunks limit 1").fetchone()

    def late(self: SnapshotReader, number: int) -> tuple[int, bytes]:
        if self._recent is not_looked:
            self._recent = self._logged().now()
        return find(self, number)

    with replaced(SnapshotReader, "_begin", early), replaced(SnapshotReader, "find", late):
        yield


# Transactions and roles.


def routed_for_good() -> Iterator[None]:
    """What is published in a transaction goes to the queue that was there then, also if that is gone at the commit."""
    with replaced(Publication, "route_now", lambda self: self.route):
        yield


def role_for_good() -> Iterator[None]:
    """A single active consumer that hangs keeps its role."""
    with replaced(SingleActiveConsumer, "timed_out", lambda self, consumer: None):
        yield


def exclusive_for_good() -> Iterator[None]:
    """An exclusive consumer that hangs keeps the others from its queue."""
    with replaced(ack_timeouts, "is_exclusive", lambda delivery: False):
        yield


# Sessions of MQTT.


def acknowledged_ahead() -> Iterator[None]:
    """Devices are told before the disk has what they are told of."""
    add = Answers.add
    with replaced(Answers, "add", lambda self, item, persistent: add(self, item, False)):
        yield


def received_unnoted() -> Iterator[None]:
    """The identifiers of what devices have published with QoS 2 are not on the disk."""
    with replaced(Session, "receive", lambda self, packet_id: self.received.add(packet_id)):
        yield


def sent_unnoted() -> Iterator[None]:
    """A message of QoS 2 is sent to a device without a note of its identifier on the disk."""

    def fly(
        self: Session, consumer: QueueConsumer, delivery: Delivery, sending: Sending, body: bytes
    ) -> None:
        flight = flights_of(self).take(sending.qos, delivery)
        self._send_flight(consumer, flight, sending, body, delivery.redelivered)

    with replaced(Session, "fly", fly):
        yield


def retained_unwritten() -> Iterator[None]:
    """Retained messages are in memory only."""
    with replaced(retained, "write", lambda *given: None):
        yield


def will_kept() -> Iterator[None]:
    """The will of a device that was published stays on the disk."""
    detach = Session.detach

    def parted(self: Session) -> None:
        with replaced(Session, "keep", lambda self: None):
            detach(self)

    with replaced(Session, "detach", parted):
        yield


def shared_again() -> Iterator[None]:
    """What a member of a shared subscription has not received for certain with QoS 2 goes to others."""
    detach = Session.detach

    def parted(self: Session) -> None:
        for flight in self.flights.by_id.values():
            if flight.token is not None and flight.token.queue.name.startswith(SHARED_PREFIX):
                self._forget(flight)
                flight.token.queue.release(flight.token)
        detach(self)

    with replaced(Session, "detach", parted):
        yield


def taken_over_and_kept() -> Iterator[None]:
    """A connection goes on whose session another one has taken over."""
    with replaced(Session, "disconnect", lambda self, code, why: self.detach()):
        yield


def unanswered_again() -> Iterator[None]:
    """A message of QoS 0 is sent once more, to be sure."""
    settle = QueueConsumer._settle

    def settled(self: QueueConsumer, delivery: Delivery, accepted: bool) -> None:
        sending, served = self.sending(delivery), self.session.served
        if sending is not None and served is not None and delivery.message.body[-1:] == b"7":
            served.wire.send(sending.field, sending.body, sending.properties, 0, 0, 0)
        settle(self, delivery, accepted)

    with replaced(QueueConsumer, "_settle", settled):
        yield


MISTAKES: Final[dict[str, Callable[[], Iterator[None]]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        confirm_early,
        acks_not_written,
        acks_ahead,
        commit_given_up,
        unflagged_after_start,
        unflagged_requeue,
        requeued_last,
        rejected_and_gone,
        expired_and_gone,
        one_too_many,
        order_reversed,
        retry_in_two,
        told_together,
        log_not_synced,
        redo_log_not_synced,
        redo_log_not_ended,
        removed_first,
        segments_not_synced,
        rewritten_and_lost,
        paged_out_too_early,
        read_before_it_is_safe,
        one_more_settled,
        reserved_and_kept,
        released_last,
        published_before_commit,
        rolled_forward,
        settled_before_commit,
        settled_all_the_same,
        settled_and_forgotten,
        settled_in_another_commit,
        commit_answered_early,
        delays_not_written,
        delayed_for_good,
        retried_at_once,
        times_not_recovered,
        dead_letters_held_for_good,
        dead_letters_held_and_sent,
        permission_remembered,
        prefetch_doubled,
        exits_not_caught,
        dead_letters_without_room,
        room_unnoticed,
        held_unwritten,
        policy_for_new_queues,
        policy_unwritten,
        one_over_the_limit,
        queue_not_forgotten,
        lease_for_good,
        impatient,
        beats_unseen,
        late_commits_count,
        undeliverable_again,
        routed_for_good,
        role_for_good,
        exclusive_for_good,
        bodies_by_number,
        bodies_not_held,
        filled_with_others,
        looked_at_the_log_late,
        acknowledged_ahead,
        received_unnoted,
        sent_unnoted,
        retained_unwritten,
        will_kept,
        shared_again,
        taken_over_and_kept,
        unanswered_again,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a mistake for a while."""
    with contextmanager(MISTAKES[name])():
        yield


# The first seed that finds each.
FOUND_BY: Final[dict[str, int]] = {
    "confirm-early": 1,
    "acks-not-written": 9,
    "acks-ahead": 38,
    "commit-given-up": 56,
    "unflagged-after-start": 1,
    "unflagged-requeue": 6,
    "requeued-last": 3,
    "rejected-and-gone": 6,
    "expired-and-gone": 93,
    "one-too-many": 6,
    "order-reversed": 65,
    "retry-in-two": 2,
    "told-together": 7,
    "log-not-synced": 4,
    "redo-log-not-synced": 21,
    "redo-log-not-ended": 1,
    "removed-first": 1317,
    "segments-not-synced": 28,
    "rewritten-and-lost": 11,
    "paged-out-too-early": 390,
    "read-before-it-is-safe": 2,
    "one-more-settled": 82,
    "reserved-and-kept": 9,
    "released-last": 78,
    "published-before-commit": 1,
    "rolled-forward": 2,
    "settled-before-commit": 38,
    "settled-all-the-same": 66,
    "settled-and-forgotten": 184,
    "settled-in-another-commit": 67,
    "commit-answered-early": 2,
    "delays-not-written": 38,
    "delayed-for-good": 10,
    "retried-at-once": 94,
    "times-not-recovered": 16,
    "dead-letters-held-for-good": 6,
    "dead-letters-held-and-sent": 38,
    "permission-remembered": 1,
    "prefetch-doubled": 31,
    "exits-not-caught": 66,
    "dead-letters-without-room": 199,
    "room-unnoticed": 390,
    "held-unwritten": 700,
    "policy-for-new-queues": 38,
    "policy-unwritten": 1,
    "one-over-the-limit": 38,
    "queue-not-forgotten": 10,
    "lease-for-good": 2,
    "impatient": 14,
    "beats-unseen": 2,
    "late-commits-count": 2,
    "undeliverable-again": 64,
    "routed-for-good": 42,
    "role-for-good": 27,
    "exclusive-for-good": 3,
    "bodies-by-number": 23,
    "bodies-not-held": 23,
    "filled-with-others": 71,
    "looked-at-the-log-late": 84,
    "acknowledged-ahead": 92,
    "received-unnoted": 1073,
    "sent-unnoted": 281,
    "retained-unwritten": 68,
    "will-kept": 281,
    "shared-again": 209,
    "taken-over-and-kept": 17,
    "unanswered-again": 5,
}
