"""A recording that is played leads to the same topology and the same messages, whatever has happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final

import attrs
import pytest

from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.explain import explain
from leveret.exchanges.standard import STANDARD
from leveret.features.recording.player import fresh_player
from leveret.features.recording.records import RecordKind, SessionRecord, whole
from leveret.plugins.delayed_message import DelayedMessage
from leveret.plugins.random_exchange import RandomExchange
from leveret.policy import Policy
from leveret.queues.queue import AT_ONCE
from leveret.testing.simulation import plan
from leveret.values import Value
from tests.features.leases.leased import Leased
from tests.harness.bench import CoreBench, message, spelled
from tests.simulation.world import Messaging

from .recorded import ENCODINGS, Recorded, records_of, replayed

TYPES: Final = {**STANDARD, RandomExchange.name: RandomExchange, DelayedMessage.name: DelayedMessage}
SEEDS: Final = range(6)
WEIGHTS: Final = {
    kind: weight
    for kind, weight in Messaging.weights.items()
    if kind not in ("crash", "io_error", "restart", "no_space")
}
BEFORE: Final = 25  # steps that are not recorded


def same(path: Path, types: Mapping[str, type[ExchangeType]] = TYPES) -> None:
    player, report = replayed(path, types=types)
    assert (report.ended, report.refused, report.differences, report.rerouted) == (True, [], [], 0)
    assert player.fingerprint() == replayed(path, types=types)[0].fingerprint()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_clients_of_three_protocols_lead_to_the_same_state(seed: int, tmp_path: Path) -> None:
    """Publishes, deliveries, all outcomes, time to live, dead letters, policies and lost connections."""
    world, steps = Messaging(), plan(seed, WEIGHTS, 80)
    for step in steps[:BEFORE]:
        getattr(world, f"step_{step.kind}")(Random(step.seed))
        world.check()
    recorded = Recorded(world.node.broker, tmp_path)
    for step in steps[BEFORE:]:
        getattr(world, f"step_{step.kind}")(Random(step.seed))
        world.check()
    world.node.settle()
    same(recorded.end(), world.node.broker.exchange_types)


class Scene:
    """A virtual host that is recorded, with what tests do in it."""

    def __init__(self, folder: Path) -> None:
        self.bench = CoreBench(TYPES)
        self.host, self.broker = self.bench.host, self.bench.broker
        self.folder = folder

    def record(self) -> Recorded:
        self.recorded = Recorded(self.broker, self.folder)
        return self.recorded

    def queue(self, name: str, **said: Value) -> None:
        self.host.declare_queue(name, durable=True, arguments=spelled(said))

    def publish(self, key: str, *bodies: bytes, priority: int = 0, ttl_ms: int | None = None) -> None:
        self.bench.publish(key, *bodies, priority=priority, ttl_ms=ttl_ms)


Happening = Callable[[Scene], None]


def priorities(scene: Scene) -> None:
    scene.queue("q", x_max_priority=5)
    for priority in (0, 3, 1, 5, 3):
        scene.publish("q", b"%d" % priority, priority=priority)
    taken = scene.host.queue("q").take_one(settled=False)
    assert taken is not None
    taken.release()


def overflow(scene: Scene) -> None:
    scene.queue("short", x_max_length=2, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    scene.queue("full", x_max_length=1, x_overflow="reject-publish")
    scene.queue("dead")
    scene.publish("short", b"1", b"2", b"3", b"4")
    scene.publish("full", b"1", b"2")


def expiry(scene: Scene) -> None:
    scene.queue("q", x_message_ttl=1000, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    scene.queue("dead")
    scene.publish("q", b"1")
    scene.bench.advance(0.5)
    scene.publish("q", b"2")
    scene.publish("dead", b"in between", ttl_ms=100)
    scene.bench.advance(0.7)


def purging(scene: Scene) -> None:
    scene.queue("q")
    scene.publish("q", b"1", b"2", b"3")
    taken = scene.host.queue("q").take_one(settled=False)
    scene.host.queue("q").purge()
    scene.publish("q", b"4")
    assert taken is not None


def deleting(scene: Scene) -> None:
    scene.queue("q")
    scene.host.declare_exchange("x", "fanout", auto_delete=True)
    scene.host.bind(scene.host.exchange("x"), scene.host.queue("q"), "")
    scene.publish("q", b"1")
    scene.host.delete_queue(scene.host.queue("q"))
    assert "x" not in scene.host.exchanges
    scene.queue("q", x_max_priority=2)
    scene.publish("q", b"2", priority=1)


def retries(scene: Scene) -> None:
    scene.queue("q", x_delayed_retry_type="all", x_delayed_retry_min=60_000, x_queue_type="quorum")
    scene.publish("q", b"1", b"2")
    taken = scene.host.queue("q").take_one(settled=False)
    assert taken is not None
    scene.host.queue("q").release(taken)


def retries_that_are_due(scene: Scene) -> None:
    scene.queue("q")
    scene.publish("q", b"1", b"2")
    queue = scene.host.queue("q")
    taken = queue.take_one(settled=False)
    assert taken is not None
    queue.release(taken, until=scene.broker.now + 5)
    scene.bench.advance(6)


def streams(scene: Scene) -> None:
    scene.queue("log", x_queue_type="stream", x_max_length_bytes=40)
    scene.publish("log", *(b"%10d" % n for n in range(9)))


def last_values(scene: Scene) -> None:
    scene.queue("q", x_last_value_key="k")
    scene.publish("q", b"1", b"2", b"3")


def delays(scene: Scene) -> None:
    scene.queue("q")
    scene.host.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    scene.host.bind(scene.host.exchange("later"), scene.host.queue("q"), "")
    scene.broker.publish(scene.host.exchange("later"), message("", b"held", exchange="later"))
    scene.bench.settle()


def policies(scene: Scene) -> None:
    scene.queue("q")
    scene.publish("q", b"1", b"2", b"3")
    scene.broker.policies.set(Policy("short", "/", "^q", {"max-length": 1}))
    scene.broker.policies.set_operator(Policy("ours", "/", "^q", {"message-ttl": 1000}))
    scene.host.apply_policies()
    scene.bench.settle()
    scene.broker.policies.clear_operator("/", "ours")
    scene.host.apply_policies()


def typed_arguments(scene: Scene) -> None:
    scene.queue("q")
    scene.host.declare_exchange("x", "headers", durable=True)
    scene.host.bind(
        scene.host.exchange("x"), scene.host.queue("q"), "", {"x-match": "all", "raw": b"\xff", "n": 5}
    )
    scene.host.pause_queue(scene.host.queue("q"), True)


def chance(scene: Scene) -> None:
    scene.host.declare_exchange("x", "x-random")
    for name in ("a", "b", "c"):
        scene.queue(name)
        scene.host.bind(scene.host.exchange("x"), scene.host.queue(name), "")
    for n in range(30):
        scene.broker.publish(scene.host.exchange("x"), message("", b"%d" % n, exchange="x"))
    scene.bench.settle()


def leases(scene: Scene) -> None:
    scene.queue("q")
    scene.publish("q", b"1", b"2", b"3", b"4", b"5")
    Leased(scene.host.queue("q"), "gone").reserve(2).settle(1).release()
    Leased(scene.host.queue("q"), "reading").reserve(2)


HAPPENINGS: Final[tuple[Happening, ...]] = (
    priorities,
    overflow,
    expiry,
    purging,
    deleting,
    retries,
    retries_that_are_due,
    streams,
    last_values,
    delays,
    policies,
    typed_arguments,
    chance,
    leases,
)


@pytest.mark.parametrize("happening", HAPPENINGS, ids=lambda each: each.__name__)
def test_what_happens_leads_to_the_same_state(happening: Happening, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.record()
    happening(scene)
    same(scene.recorded.end())


@pytest.mark.parametrize("happening", HAPPENINGS, ids=lambda each: each.__name__)
def test_a_recording_begins_with_what_has_happened(happening: Happening, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    happening(scene)
    scene.record()
    same(scene.recorded.end())


def test_a_message_that_was_unacknowledged_at_the_start_may_come_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.queue("q")
    scene.publish("q", b"1", b"2", b"3", b"4")
    queue = scene.host.queue("q")
    first, second, third = (queue.take_one(settled=False) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    scene.record()
    queue.release(first, until=AT_ONCE)
    queue.accept(second)
    path = scene.recorded.end()
    same(path)
    player, _ = replayed(path)
    assert [each.message.body for each in player.host.queue("q").waiting()] == [b"1", b"4"]


def tampered(records: list[SessionRecord]) -> list[str]:
    """Return the differences that playing these records shows."""
    player = fresh_player("/", TYPES, ENCODINGS.get)
    for record in records:
        player.play(record)
    return player.compare().differences


def without_last(records: list[SessionRecord], kind: RecordKind) -> list[SessionRecord]:
    last = max(at for at, record in enumerate(records) if record.kind is kind)
    return records[:last] + records[last + 1 :]


@pytest.mark.parametrize(
    "kind", [RecordKind.CONTENT, RecordKind.ENTERED, RecordKind.LEFT, RecordKind.EVENT, RecordKind.DELIVERED]
)
def test_a_difference_is_told(kind: RecordKind, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.queue("old")
    scene.publish("old", b"there")
    scene.record()
    scene.queue("q")
    scene.publish("q", b"1", b"2", b"3")
    queue = scene.host.queue("q")
    queue.take_one(settled=True)
    assert queue.take_one(settled=False) is not None
    path = scene.recorded.end()
    assert tampered(records_of(path)) == []
    assert tampered(without_last(records_of(path), kind)) != []


def test_another_body_is_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.queue("q")
    scene.record()
    scene.publish("q", b"right")

    records = records_of(scene.recorded.end())
    changed = [attrs.evolve(each, raw=each.raw.replace(b"right", b"wrong")) for each in records]
    assert tampered(changed) == ["queue 'q': message 1 has other content"]


def test_a_recording_without_an_end_tells_nothing_about_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.record()
    records = [each for each in records_of(scene.recorded.end()) if each.kind is not RecordKind.END]
    path = tmp_path / "cut"
    path.write_bytes(whole(records))
    _, report = replayed(path)
    assert (report.ended, report.to_json()["same"]) == (False, False)


def test_a_seed_repeats_what_is_routed_by_chance(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.record()
    chance(scene)
    scene.host.queue("a").take_one(settled=True)
    path = scene.recorded.end()
    prints = [replayed(path, seed, TYPES)[0].fingerprint() for seed in (1, 1, 2)]
    assert prints[0] == prints[1] != prints[2]
    player, report = replayed(path, 1, TYPES)
    assert sum(queue.ready for queue in player.host.queues.values()) == 29
    assert report.rerouted > 0
    assert report.differences


def test_a_seed_changes_nothing_that_is_not_left_to_chance(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.queue("q")
    scene.record()
    scene.publish("q", b"1", b"2", b"3", b"4")
    queue = scene.host.queue("q")
    queue.take_one(settled=True)
    taken = queue.take_one(settled=False)
    assert taken is not None
    taken.accept()
    path = scene.recorded.end()
    player, report = replayed(path, 5, TYPES)
    assert report.differences == []
    assert player.fingerprint() == replayed(path, None, TYPES)[0].fingerprint()


def test_an_exchange_type_that_is_missing_is_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.record()
    chance(scene)
    _, report = replayed(scene.recorded.end(), types=STANDARD)
    assert report.refused[0] == "exchange 'x' is of the type 'x-random', which is not installed"


def test_the_route_of_a_moment_is_explained_with_the_topology_of_then(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.queue("q")
    scene.host.declare_exchange("x", "topic")
    scene.record()
    scene.bench.advance(10)
    scene.host.bind(scene.host.exchange("x"), scene.host.queue("q"), "a.*")
    scene.bench.advance(10)
    scene.host.unbind(scene.host.exchange("x"), scene.host.queue("q"), "a.*")
    records = records_of(scene.recorded.end())
    begin_at = records[0].at
    queues = []
    for seconds in (0, 15, 25):
        player = fresh_player("/", TYPES, ENCODINGS.get, contents=False)
        for record in records:
            if record.at <= begin_at + seconds * 1_000_000:
                player.play(record)
        queues.append(explain(player.host, "x", "a.b").queues)
    assert queues == [(), ("q",), ()]


def test_a_replayed_host_obeys_its_limits_once_it_is_awake(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.queue("q", x_max_length=2)
    scene.record()
    scene.publish("q", b"1", b"2", b"3")
    taken = scene.host.queue("q").take_one(settled=False)
    assert taken is not None
    player, report = replayed(scene.recorded.end())
    assert report.differences == []
    player.release()
    queue = player.host.queue("q")
    assert (queue.ready, queue.unsettled, queue.limits.max_length) == (2, 0, 2)
    assert [each.redelivered for each in queue.waiting()] == [True, False]


def test_what_was_there_is_forgotten_when_everything_is_described_anew(tmp_path: Path) -> None:
    """So it is in each file of a recording, and after a gap: two are played, of which only the last has an end."""
    scene = Scene(tmp_path)
    scene.queue("q", x_max_priority=2)
    scene.host.declare_exchange("x", "topic", durable=True)
    scene.host.bind(scene.host.exchange("x"), scene.host.queue("q"), "a.#")
    policies = scene.broker.policies
    policies.set(Policy("bounded", "/", "^q", {"max-length": 5}))
    policies.set_operator(Policy("strict", "/", "^q", {"max-length": 3}))
    scene.host.apply_policies()
    scene.publish("q", b"1", b"2")
    first = scene.record().end()
    scene.bench.advance(1.0)
    scene.host.delete_exchange("x")
    policies.clear("/", "bounded")
    policies.clear_operator("/", "strict")
    scene.host.apply_policies()
    scene.host.queue("q").purge()
    scene.publish("q", b"3", priority=1)
    second = scene.record().end()
    player = fresh_player("/", TYPES, ENCODINGS.get)
    for record in records_of(first):
        if record.kind not in (RecordKind.LISTING, RecordKind.END):
            player.play(record)
    assert "x" in player.host.exchanges
    assert [each.name for each in player.host.broker.policies.list_operator("/")] == ["strict"]
    for record in records_of(second):
        player.play(record)
    report = player.compare()
    assert (report.ended, report.refused, report.differences) == (True, [], [])
    assert "x" not in player.host.exchanges
    assert player.fingerprint() == replayed(second, types=TYPES)[0].fingerprint()
