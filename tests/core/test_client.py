"""What a client may do: a permission for each verb, and what goes with its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from leveret.client import Client
from leveret.config.compat import compat
from leveret.errors import (
    AccessRefused,
    LimitReached,
    Locked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from leveret.limits import NodeLimits, UserLimits, VirtualHostLimits
from leveret.queues.filtered import FilteredQueue
from leveret.security.users import Permission, User
from leveret.selectors.parser import compile_selector
from tests.core.fakes import FakeConsumer
from tests.harness.bench import CoreBench, message

C, W, R = Permission.CONFIGURE, Permission.WRITE, Permission.READ
Need: TypeAlias = tuple[Permission, str]


@pytest.fixture
def bench() -> CoreBench:
    return prepared(CoreBench())


def prepared(bench: CoreBench) -> CoreBench:
    """Some exchanges and queues that somebody else has declared."""
    for name in ("x", "y"):
        bench.host.declare_exchange(name, "topic")
    bench.queue("q")
    bench.publish("q", b"a")
    return bench


def user(bench: CoreBench, needs: set[Need]) -> User:
    """A user with exactly these permissions."""
    added = bench.broker.access.add_user("u", "secret")
    expressions = [
        "|".join(f"^{name}$" for p, name in sorted(needs, key=str) if p is each) for each in (C, W, R)
    ]
    bench.broker.access.set_permissions("u", "/", *expressions)
    return added


def client(bench: CoreBench, needs: set[Need] | None = None) -> Client:
    """A connected client; without `needs` it may do everything."""
    found = bench.broker.access.user("u") if needs is None else None
    if found is None:
        found = user(bench, needs or set())
    if needs is None:
        bench.broker.access.set_permissions("u", "/", ".*", ".*", ".*")
    made = Client(bench.broker, found)
    made.enter("/")
    return made


# Permissions.

VERBS: dict[str, tuple[Callable[[Client], object], set[Need]]] = {
    "declare exchange": (lambda c: c.declare_exchange("new", "direct"), {(C, "new")}),
    "declare exchange with alternate": (
        lambda c: c.declare_exchange("new", "direct", arguments={"alternate-exchange": "x"}),
        {(C, "new"), (R, "new"), (W, "x")},
    ),
    "delete exchange": (lambda c: c.delete_exchange("x"), {(C, "x")}),
    "bind": (lambda c: c.bind("x", "q", False, "k", {}), {(W, "q"), (R, "x")}),
    "bind exchanges": (lambda c: c.bind("x", "y", True, "k", {}), {(W, "y"), (R, "x")}),
    "unbind": (lambda c: c.unbind("x", "q", False, "k", {}), {(W, "q"), (R, "x")}),
    "list bindings": (lambda c: c.bindings("x", "q", False, "k"), {(W, "q"), (R, "x")}),
    "declare queue": (lambda c: c.declare_queue("new"), {(C, "new")}),
    "declare queue with dead letters": (
        lambda c: c.declare_queue("new", arguments={"x-dead-letter-exchange": "x"}),
        {(C, "new"), (R, "new"), (W, "x")},
    ),
    "purge": (lambda c: c.purge("q"), {(R, "q")}),
    "delete queue": (lambda c: c.delete_queue("q"), {(C, "q")}),
    "publish": (lambda c: c.publish_target("x", ["k"]), {(W, "x")}),
    "publish to the default exchange": (lambda c: c.publish_target("", ["q"]), {(W, "amq.default")}),
    "consume and get": (lambda c: c.readable_queue("q"), {(R, "q")}),
}
CASES = [(verb, missing) for verb, (_, needs) in VERBS.items() for missing in sorted(needs, key=str)]


@pytest.mark.parametrize("verb", VERBS)
def test_s087_s098_s147_a_verb_needs_its_permissions_and_no_more(bench: CoreBench, verb: str) -> None:
    action, needs = VERBS[verb]
    action(client(bench, needs))


@pytest.mark.parametrize(("verb", "missing"), CASES)
def test_s087_s098_s147_without_one_of_them_it_is_refused_by_name(bench: CoreBench, verb: str, missing: Need):
    action, needs = VERBS[verb]
    permission, name = missing
    before = bench.host.revision
    with pytest.raises(
        AccessRefused, match=rf"{permission.value} access to \w+ '{name}' in vhost '/' refused"
    ):
        action(client(bench, needs - {missing}))
    assert bench.host.revision == before


@pytest.mark.parametrize("permission", Permission)
def test_s041_any_permission_will_do_to_ask_whether_a_thing_is_there(
    bench: CoreBench, permission: Permission
) -> None:
    asking = client(bench, {(permission, "x"), (permission, "q"), (permission, "none")})
    assert (asking.find_exchange("x").name, asking.find_queue("q").name) == ("x", "q")
    with pytest.raises(NotFound):
        asking.find_queue("none")
    with pytest.raises(AccessRefused):
        asking.find_exchange("y")


def test_s148_alternates_and_dead_letters_are_asked_for_only_when_a_thing_is_made(bench: CoreBench) -> None:
    client(bench).declare_exchange("new", "direct", arguments={"alternate-exchange": "x"})
    client(bench).declare_queue("p", arguments={"x-dead-letter-exchange": "x"})
    again = client(bench, {(C, "new"), (C, "p")})
    again.declare_exchange("new", "direct", arguments={"alternate-exchange": "x"})
    again.declare_queue("p", arguments={"x-dead-letter-exchange": "x"})


def test_x084_bindings_are_listed_by_both_ends_and_key(bench: CoreBench) -> None:
    made = client(bench)
    for source, destination, is_exchange, key, arguments in (
        ("x", "q", False, "k", {}),
        ("x", "q", False, "k", {"a": 1}),
        ("x", "q", False, "other", {}),
        ("y", "q", False, "k", {}),
        ("x", "y", True, "k", {}),
    ):
        made.bind(source, destination, is_exchange, key, arguments)
    assert [each.arguments for each in made.bindings("x", "q", False, "k")] == [{}, {"a": 1}]
    assert [each.destination for each in made.bindings("x", "y", True, "k")] == [bench.host.exchange("y")]
    assert made.bindings("y", "q", False, "none") == []
    with pytest.raises(NotFound):
        made.bindings("x", "none", False, "k")


def test_s088_topic_permissions_count_for_every_key_and_for_bindings(bench: CoreBench) -> None:
    made = client(bench)
    bench.broker.access.set_topic_permissions("u", "/", "x", "^w", "^r")
    made.publish_target("x", ["w1", "w2"])
    with pytest.raises(AccessRefused, match="write access to topic 'r' in exchange 'x' in vhost '/' refused"):
        made.publish_target("x", ["w1", "r"])
    made.bind("x", "q", False, "r.#", {})
    with pytest.raises(AccessRefused, match="read access to topic 'w' in exchange 'x'"):
        made.bind("x", "q", False, "w", {})


def test_s047_an_internal_exchange_is_not_for_clients(bench: CoreBench) -> None:
    with pytest.raises(AccessRefused, match=r"cannot publish to internal exchange 'amq.rabbitmq.trace'"):
        client(bench).publish_target("amq.rabbitmq.trace")


DEFAULT: list[Callable[[Client], object]] = [
    lambda c: c.declare_exchange("", "direct"),
    lambda c: c.find_exchange(""),
    lambda c: c.delete_exchange(""),
    lambda c: c.bind("", "q", False, "k", {}),
    lambda c: c.bind("x", "", True, "k", {}),
    lambda c: c.unbind("", "q", False, "k", {}),
]


@pytest.mark.parametrize("action", DEFAULT)
def test_s037_s072_the_default_exchange_is_only_for_publishing(
    bench: CoreBench, action: Callable[[Client], object]
) -> None:
    with pytest.raises(AccessRefused, match="operation not permitted on the default exchange"):
        action(client(bench))


def test_x008_a_consumer_goes_on_only_as_long_as_it_may_read(bench: CoreBench) -> None:
    made, queue = client(bench), bench.host.queue("q")
    assert made.may_still_read(queue)
    bench.broker.access.set_permissions("u", "/", "", "", "")
    assert not made.may_still_read(queue)


# What is not there.


def test_s043_s057_s075_what_is_not_there_can_be_deleted(bench: CoreBench) -> None:
    made = client(bench)
    made.delete_exchange("none")
    assert made.delete_queue("none") == 0
    made.unbind("x", "q", False, "none", {})
    made.unbind("none", "q", False, "none", {})


def test_s043_s057_s075_unless_the_profile_says_otherwise() -> None:
    made = client(prepared(CoreBench(compat=compat("spec"))))
    for action in (
        lambda: made.delete_exchange("none"),
        lambda: made.delete_queue("none"),
        lambda: made.unbind("x", "q", False, "none", {}),
        lambda: made.unbind("none", "q", False, "none", {}),
    ):
        with pytest.raises(NotFound):
            action()


def test_quorum_queues_are_not_deleted_conditionally(bench: CoreBench) -> None:
    made = client(bench)
    made.declare_queue("quorum", durable=True, arguments={"x-queue-type": "quorum"})
    with pytest.raises(Unsupported, match="with if-empty flag set are not supported by quorum queues"):
        made.delete_queue("quorum", if_empty=True)
    assert made.delete_queue("quorum") == 0


# Exclusive queues.


def test_s066_an_exclusive_queue_is_for_its_client_alone(bench: CoreBench) -> None:
    owner, other = client(bench), client(bench)
    mine = owner.declare_queue("mine", exclusive=True)
    for action in (
        lambda: other.declare_queue("mine", exclusive=True),
        lambda: other.declare_queue("mine"),
        lambda: other.find_queue("mine"),
        lambda: other.purge("mine"),
        lambda: other.delete_queue("mine"),
        lambda: other.readable_queue("mine"),
        lambda: other.bind("x", "mine", False, "k", {}),
        lambda: other.unbind("x", "mine", False, "k", {}),
        lambda: bench.host.declare_queue("mine", exclusive=True),  # as definitions do, for nobody
    ):
        with pytest.raises(Locked, match="cannot obtain exclusive access to locked queue 'mine'"):
            action()
    assert owner.declare_queue("mine", exclusive=True) is mine
    assert bench.broker.publish(bench.host.default_exchange, message("mine")).value == "taken"


def test_s067_exclusive_queues_go_with_their_client(bench: CoreBench) -> None:
    owner, other = client(bench), client(bench)
    owner.declare_queue("mine", exclusive=True)
    consumed = owner.declare_queue("consumed", exclusive=True, auto_delete=True)
    owner.declare_queue("shared")
    FakeConsumer(consumed)
    owner.delete_queue("mine")
    owner.declare_queue("mine", exclusive=True)
    other.leave()
    assert "mine" in bench.host.queues
    owner.leave()
    assert sorted(bench.host.queues) == ["q", "shared"]
    assert not owner.exclusive_queues


def test_s060_an_empty_name_asks_for_a_generated_one(bench: CoreBench) -> None:
    made = client(bench)
    names = [made.declare_queue("", exclusive=True).name for _ in range(2)]
    assert all(name.startswith("amq.gen-") for name in names)
    assert names[0] != names[1]


def test_a_front_end_may_choose_a_name_of_the_brokers_own_and_a_condition(bench: CoreBench) -> None:
    """The permission is asked for all the same; found again, the queue is the one that was made."""
    may = client(bench, {(C, "amq.ours"), (C, "amq.mine")})
    queue = may.declare_queue("amq.ours", ours=True, selector=compile_selector("h.priority = 1"))
    assert (type(queue), queue.name) == (FilteredQueue, "amq.ours")
    assert may.declare_queue("amq.ours", ours=True) is queue
    with pytest.raises(AccessRefused, match="reserved prefix"):
        may.declare_queue("amq.mine")
    with pytest.raises(AccessRefused, match="configure access"):
        may.declare_queue("amq.others", ours=True)


def test_s083_a_queue_with_a_single_active_consumer_is_not_fetched_from(bench: CoreBench) -> None:
    made = client(bench)
    queue = made.declare_queue("single", arguments={"x-single-active-consumer": True})
    with pytest.raises(Locked, match=r"basic.get operations are not supported by classic queues with single"):
        made.get(queue, settled=True)
    assert made.get(bench.host.queue("q"), settled=True) is not None


# Coming and going.


def test_s015_a_virtual_host_must_exist_and_the_user_have_a_permission_in_it(bench: CoreBench) -> None:
    bench.broker.add_virtual_host("other")
    stranger = Client(bench.broker, user(bench, set()))
    with pytest.raises(NotAllowed, match="access to vhost 'other' refused for user 'u'"):
        stranger.enter("other")
    with pytest.raises(NotAllowed, match="vhost none not found"):
        stranger.enter("none")
    stranger.leave()
    assert (bench.broker.clients, bench.host.connections) == ({}, 0)


LIMITS: list[Callable[[CoreBench], None]] = [
    lambda w: setattr(w.host, "limits", VirtualHostLimits(max_connections=2)),
    lambda w: setattr(w.broker, "node_limits", NodeLimits(max_connections=2)),
]


@pytest.mark.parametrize("limit", LIMITS)
def test_s016_x005_connections_are_counted_and_the_room_of_those_that_left_is_free(
    bench: CoreBench, limit: Callable[[CoreBench], None]
) -> None:
    limit(bench)
    first, _ = client(bench), client(bench)
    with pytest.raises(LimitReached):
        client(bench)
    first.leave()
    first.leave()
    client(bench)
    assert (bench.host.connections, bench.broker.connections_of["u"]) == (2, 2)


def test_x005_a_user_may_have_only_so_many_connections_and_channels(bench: CoreBench) -> None:
    limited = bench.broker.access.add_user("few", limits=UserLimits(max_connections=1, max_channels=2))
    bench.broker.access.set_permissions("few", "/", "", "", "")
    made = Client(bench.broker, limited)
    made.enter("/")
    for _ in range(2):
        made.open_channel()
    with pytest.raises(LimitReached):
        made.open_channel()
    made.close_channel()
    made.open_channel()
    with pytest.raises(LimitReached):
        Client(bench.broker, limited).enter("/")


def test_s089_a_user_id_is_the_users_own(bench: CoreBench) -> None:
    made = client(bench)
    made.require_user_id("u")
    with pytest.raises(
        PreconditionFailed, match="user_id property set to 'v' but authenticated user was 'u'"
    ):
        made.require_user_id("v")
