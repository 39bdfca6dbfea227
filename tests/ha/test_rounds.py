"""What the loss of a node, of the network or of a database server does to clients of every kind.

Each round loads the cluster, breaks something, and counts: nothing that was confirmed is lost, each client's messages
are in the order in which it has published them, and those are flagged as redelivered that may have been delivered.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pika
import pytest

from tests.ha.planted import with_epochs, without_epochs
from tests.ha.publishers import DURABLE, connected
from tests.ha.scene import TTL_S, HaNode, HaScene, Outcome, at_once, wait_until
from tests.harness.seldom import elsewhere, one_feature, planted

KILLS = int(os.environ.get("HA_KILLS", "5"))
SOME_KILLS = 2
PLANTED = ("-m", "tests.ha.planted")
JUMPING = ("-m", "tests.ha.jumping")
HOUR_S = 3600
BODIES = (b"1", b"2", b"3", b"4")
WAIT_MS = 1000
LATER = {
    "x-delayed-message": True,
    "x-delayed-retry-type": "all",
    "x-delayed-retry-min": WAIT_MS,
    "x-delayed-retry-max": WAIT_MS,
}
SLACK_S = 0.05  # between the test's time of day and the node's

pytestmark = [
    pytest.mark.system,
    # clients whose connections are lost leave sockets to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def check(outcomes: list[Outcome], confirmed: int = 2) -> None:
    for each in outcomes:
        print(each)
        assert (each.lost, each.disordered, each.misflagged) == ([], [], [])
        assert each.confirmed >= confirmed


def let_go(connection: pika.BlockingConnection) -> None:
    """Close a connection that is lost."""
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


@pytest.mark.parametrize(
    "number",
    [*range(SOME_KILLS), *(pytest.param(each, marks=elsewhere) for each in range(SOME_KILLS, KILLS))],
)
def test_the_owner_is_killed(scene: HaScene, number: int) -> None:
    outcomes: list[Outcome] = []
    with scene.load(outcomes=outcomes) as clients:
        wait_until(lambda: all(len(client.confirmed) > 5 for client in clients), "load")
        owner = scene.wait_for_owner()
        epoch = scene.epoch
        scene.crashed_at = time.monotonic()
        owner.kill()
        took_s = scene.all_confirm_again(clients, time.monotonic())
    print(f"{took_s:.2f} s after the kill")
    assert took_s < 10  # 1 s where nothing else runs
    check(outcomes)
    assert outcomes[0].flagged
    assert scene.epoch == epoch + 1
    assert scene.owner is scene.other(owner)


def test_a_node_that_stands_by_is_killed(scene: HaScene) -> None:
    outcomes: list[Outcome] = []
    owner = scene.wait_for_owner()
    epoch = scene.epoch
    with scene.load(outcomes=outcomes) as clients:
        scene.other(owner).kill()
        scene.all_confirm_again(clients, time.monotonic())
    check(outcomes)
    assert scene.epoch == epoch


def test_both_nodes_are_killed(scene: HaScene) -> None:
    outcomes: list[Outcome] = []
    with scene.load("confirms", "stream", "amqp10", outcomes=outcomes) as clients:
        scene.crashed_at = time.monotonic()
        for node in scene.nodes:
            node.kill()
        scene.start()
        scene.all_confirm_again(clients, time.monotonic())
    check(outcomes)


def test_the_owner_is_told_to_hand_over(scene: HaScene) -> None:
    """What was delivered and not acknowledged is flagged, and comes first again; nothing else is flagged."""
    outcomes: list[Outcome] = []
    with scene.load(outcomes=outcomes) as clients:
        owner = scene.wait_for_owner()
        held = Held(owner)
        heir = scene.other(owner)
        wait_until(lambda: heir.name in owner.standing_by(), "sight of the heir")
        asked = owner.ask("/api/cluster/failover", "POST", f'{{"to": "{heir.name}"}}')
        assert isinstance(asked, dict)
        assert asked.get("to") == heir.name
        assert scene.wait_for_owner(other_than=owner.name) is heir
        scene.all_confirm_again(clients, time.monotonic())
        held.check(heir)
    check(outcomes)
    assert owner.is_running
    assert "hands over to" in owner.text()


class Held:
    """Four messages, of which a consumer has three and acknowledges none before its node ends."""

    def __init__(self, owner: HaNode) -> None:
        self._connection = connected(owner.amqp)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._channel.queue_declare("held", durable=True)
        for body in BODIES:
            self._channel.basic_publish("", "held", body, DURABLE)
        for body in BODIES[:3]:
            assert self._channel.basic_get("held")[2] == body

    def check(self, heir: HaNode) -> None:
        """Find all of them in their order, and three flagged."""
        let_go(self._connection)
        connection = connected(heir.amqp)
        channel = connection.channel()
        found = [channel.basic_get("held") for _ in BODIES]
        assert [body for _, _, body in found] == list(BODIES)
        assert [method.redelivered for method, _, _ in found] == [True, True, True, False]
        channel.queue_delete("held")
        connection.close()


def test_the_owner_is_stopped(scene: HaScene) -> None:
    outcomes: list[Outcome] = []
    with scene.load("confirms", "tx", "amqp010", outcomes=outcomes) as clients:
        owner = scene.wait_for_owner()
        owner.tell(signal.SIGTERM)
        at = time.monotonic()
        scene.wait_for_owner(other_than=owner.name)
        scene.all_confirm_again(clients, at)
        assert owner.process is not None
        assert owner.process.wait(20) == 0
    check(outcomes)


def test_two_nodes_claim_at_once(scene: HaScene) -> None:
    """One claim succeeds, and what it has taken over is fenced."""
    from leveret.durable.store.postgres.shard import Shard

    epoch = scene.epoch
    shards = [Shard(scene.database, f"c{n}") for n in range(4)]
    claims = [lambda each=each: each.claim(epoch, "c", None) for each in shards]
    won = at_once(*claims)
    assert (won.count(epoch + 1), won.count(None)) == (1, 3)
    for each in shards:
        each.close()
    scene.wait_for_owner()  # the winner gives no signs of life
    assert scene.epoch > epoch + 1
    assert all(node.is_running for node in scene.nodes)


class OldClient:
    """A client of the owner that has something on its way while this is paused or cut off."""

    def __init__(self, scene: HaScene) -> None:
        self.owner = scene.wait_for_owner()
        self.connection = connected(self.owner.amqp)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.channel.queue_declare("old", durable=True)
        self.channel.queue_purge("old")
        self.delivered: list[bytes] = []
        self.confirmed = 0

    def prepare(self) -> None:
        """Have one delivery, which is not acknowledged yet, and ten messages behind it."""
        for n in range(10):
            self.channel.basic_publish("", "old", b"%d" % n, DURABLE)
        self.channel.basic_qos(prefetch_count=1)
        self.channel.basic_consume("old", lambda _, method, __, body: self.delivered.append(body))
        while not self.delivered:
            self.connection.process_data_events(0.1)

    def act(self) -> None:
        """Send an acknowledgement, which asks for the next delivery, and a message that is never confirmed."""
        self.channel._impl.basic_ack(0, True)
        self.publish()

    def publish(self) -> None:
        """Send a message that is never confirmed."""
        impl = self.channel._impl
        impl.add_callback(self._on_confirm, [pika.spec.Basic.Ack], one_shot=False)
        impl.basic_publish("", "old", b"late", DURABLE)
        self.connection._flush_output(lambda: True)

    def _on_confirm(self, frame: object) -> None:
        self.confirmed += 1

    def hears(self) -> bool:
        """Read what has come."""
        with contextlib.suppress(pika.exceptions.AMQPError):
            self.connection.process_data_events(0.1)
        return True

    def outcome(self) -> str:
        """Read until the connection ends; return why."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                self.connection.process_data_events(0.2)
            except pika.exceptions.AMQPError as failure:
                return str(failure)
        return "it is open"


def test_the_owner_is_paused(scene: HaScene) -> None:
    """It neither confirms nor delivers once it goes on, closes its clients, and stands by."""
    old = OldClient(scene)
    old.prepare()
    outcomes: list[Outcome] = []
    epoch = scene.epoch
    with scene.load(outcomes=outcomes, at=scene.other(old.owner)) as clients:
        scene.crashed_at = at = time.monotonic()
        old.owner.tell(signal.SIGSTOP)
        old.act()
        heir = scene.wait_for_owner(other_than=old.owner.name)
        took_s = scene.all_confirm_again(clients, at + 1) + 1
        old.owner.tell(signal.SIGCONT)
        why = old.outcome()
    assert "another node serves now" in why, old.owner.text()[-4000:]
    assert "320" in why
    assert (old.confirmed, old.delivered) == (0, [b"0"])
    assert TTL_S < took_s < TTL_S + 10  # 2 s where nothing else runs
    check(outcomes)
    assert (scene.owner, scene.epoch) == (heir, epoch + 1)
    assert old.owner.is_running


def test_the_owner_is_cut_off_from_the_database(scene: HaScene) -> None:
    """Its clients are closed at its successor's word, and served by that one, whatever it sees of the database."""
    old = OldClient(scene)
    old.prepare()
    outcomes: list[Outcome] = []
    epoch = scene.epoch
    with scene.load(outcomes=outcomes, at=scene.other(old.owner)) as clients:
        scene.crashed_at = at = time.monotonic()
        for relay in old.owner.relays:
            relay.freeze()
        try:
            old.publish()
            why = old.outcome()
            again = connected(old.owner.amqp)
            channel = again.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "old", b"again", DURABLE)
            took_s = time.monotonic() - at
            again.close()
            scene.all_confirm_again(clients, at + 1)
        finally:
            for relay in old.owner.relays:
                relay.thaw()
    print(f"a client of the node that was cut off was confirmed again after {took_s:.2f} s")
    assert "another node serves now" in why, old.owner.text()[-4000:]
    assert (old.confirmed, old.delivered) == (0, [b"0"])
    assert TTL_S < took_s < TTL_S + 10  # 2 s where nothing else runs
    check(outcomes)
    assert scene.epoch == epoch + 1
    assert old.owner.is_running


def test_the_database_is_away_for_a_moment(scene: HaScene) -> None:
    """Nobody is closed, and nobody takes over."""
    outcomes: list[Outcome] = []
    epoch = scene.epoch
    with scene.load(outcomes=outcomes) as clients:
        before = [client.opened for client in clients]
        relays = [relay for node in scene.nodes for relay in node.relays]
        for relay in relays:
            relay.freeze()
        time.sleep(0.5)
        for relay in relays:
            relay.thaw()
        scene.all_confirm_again(clients, time.monotonic())
        assert [client.opened for client in clients] == before
    check(outcomes)
    assert scene.epoch == epoch


def test_the_databases_standby_does_not_answer(scene: HaScene) -> None:
    """Publishers wait, for longer than the lease lasts; nothing is confirmed, and nobody takes over."""
    outcomes: list[Outcome] = []
    epoch = scene.epoch
    with scene.load("confirms", "tx", "amqp010", outcomes=outcomes) as clients:
        scene.pair.standby.pause()
        try:
            time.sleep(0.3)
            confirmed = [len(client.confirmed) for client in clients]
            time.sleep(TTL_S + 0.5)
            assert [len(client.confirmed) for client in clients] == confirmed
        finally:
            scene.pair.standby.go_on()
        scene.all_confirm_again(clients, time.monotonic())
        assert [client.opened for client in clients] == [1] * 3
    check(outcomes)
    assert scene.epoch == epoch


def test_the_wait_for_the_standby_is_cancelled(scene: HaScene) -> None:
    """What was committed on the primary alone is not confirmed before the standby has it."""
    outcomes: list[Outcome] = []
    cancel = "select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'"
    with scene.load("confirms", "amqp10", outcomes=outcomes) as clients:
        scene.pair.standby.pause()
        try:
            time.sleep(0.3)
            confirmed = [len(client.confirmed) for client in clients]
            wait_until(lambda: int(scene.pair.primary.ask(cancel)) > 0, "commit that waits")
            time.sleep(0.5)
            assert [len(client.confirmed) for client in clients] == confirmed
        finally:
            scene.pair.standby.go_on()
        scene.all_confirm_again(clients, time.monotonic())
    check(outcomes)


@elsewhere
def test_the_database_is_full(scene: HaScene) -> None:
    """Publishers wait, and go on when there is room; nobody is closed, and nobody takes over."""
    outcomes: list[Outcome] = []
    epoch = scene.epoch
    with scene.load(outcomes=outcomes) as clients:
        before = [client.opened for client in clients]
        scene.fill_database()
        try:
            time.sleep(0.3)
            confirmed = [len(client.confirmed) for client in clients]
            time.sleep(0.4)
            assert [len(client.confirmed) for client in clients] == confirmed
        finally:
            scene.empty_database()
        scene.all_confirm_again(clients, time.monotonic())
        assert [client.opened for client in clients] == before
    check(outcomes)
    assert scene.epoch == epoch
    assert any("no space for the store" in node.text() for node in scene.nodes)


@one_feature
def test_the_owner_is_killed_while_messages_wait_for_their_time(scene: HaScene) -> None:
    """What waits for its time, or to be tried again, comes from the other node, and not too early."""
    owner = scene.wait_for_owner()
    connection = connected(owner.amqp)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("later", durable=True, arguments=LATER)
    channel.basic_publish("", "later", b"failed", DURABLE)
    method, _, _ = channel.basic_get("later")
    due = {b"failed": time.time() + WAIT_MS / 1000}
    channel.basic_nack(method.delivery_tag)
    scheduled = pika.BasicProperties(delivery_mode=2, headers={"x-delay": WAIT_MS})
    for body in (b"one", b"two"):  # a confirm comes after all that was before it
        due[body] = time.time() + WAIT_MS / 1000
        channel.basic_publish("", "later", body, scheduled)
    owner.kill()
    let_go(connection)
    connection = connected(scene.wait_for_owner(other_than=owner.name).amqp)
    channel = connection.channel()
    came: dict[bytes, tuple[float, bool, object]] = {}
    for method, properties, body in channel.consume("later", inactivity_timeout=10):
        assert body is not None, f"only {came}"
        tries = (properties.headers or {}).get("x-delivery-count")
        came[body] = time.time(), method.redelivered, tries
        channel.basic_ack(method.delivery_tag)
        if len(came) == len(due):
            break
    connection.close()
    assert all(came[body][0] > at - SLACK_S for body, at in due.items())
    assert all(flagged for _, flagged, _ in came.values())
    assert [came[body][2] for body in (b"failed", b"one", b"two")] == [1, None, None]


def test_clocks_jump(scene: HaScene) -> None:
    """Nodes whose times of day are hours apart serve and take over as others do: none of them compares any."""
    outcomes: list[Outcome] = []
    owner = scene.wait_for_owner()
    other = scene.other(owner)
    other.kill()
    other.jump(HOUR_S)
    other.start(JUMPING)
    scene.start()
    epoch = scene.epoch
    with scene.load(outcomes=outcomes) as clients:
        other.jump(-2 * HOUR_S)
        scene.all_confirm_again(clients, time.monotonic())
        assert scene.epoch == epoch
        scene.crashed_at = time.monotonic()
        owner.kill()
        scene.all_confirm_again(clients, scene.crashed_at)
        assert scene.owner is other
        for jump_s in (HOUR_S, -HOUR_S):
            other.jump(jump_s)
            scene.all_confirm_again(clients, time.monotonic())
    check(outcomes)
    assert scene.epoch == epoch + 1


@planted
def test_an_owner_that_nothing_stops_is_noticed(scene: HaScene) -> None:
    """The round with a paused owner finds a node that checks no epoch, and never suspends itself."""
    for node in scene.nodes:
        node.kill()
    scene.nodes[0].start(PLANTED)
    assert scene.wait_for_owner() is scene.nodes[0]
    without_epochs(scene.database)
    scene.start()
    try:
        old = OldClient(scene)
        assert old.owner is scene.nodes[0]
        old.prepare()
        old.owner.tell(signal.SIGSTOP)
        old.act()
        scene.wait_for_owner(other_than=old.owner.name)
        old.owner.tell(signal.SIGCONT)
        wait_until(lambda: old.hears() and old.confirmed > 0 and len(old.delivered) > 1, "mistake")
        let_go(old.connection)
    finally:
        for node in scene.nodes:
            node.tell(signal.SIGCONT)
            node.kill()
        with_epochs(scene.database)


def test_the_databases_primary_is_lost(scene: HaScene) -> None:
    """Connections stay open, and go on with the standby once that is the primary and has a standby of its own.

    The last round: the pair is another one afterwards.
    """
    outcomes: list[Outcome] = []
    with scene.load(outcomes=outcomes) as clients:
        before = [client.opened for client in clients]
        scene.pair.primary.kill()
        at = time.monotonic()
        scene.promote()
        took_s = scene.all_confirm_again(clients, at)
        assert [client.opened for client in clients] == before
        scene.kill_owner(clients)  # its memory would hide what the promoted server lacks
    print(f"{took_s:.2f} s, of which PostgreSQL took {scene.promoted_s:.2f} s")
    check(outcomes)
