"""The parameters of upstreams and sets: what is refused, what is kept over a restart, and whose passwords are shown."""

from __future__ import annotations

import pytest

from leveret.errors import NotFound, PreconditionFailed
from leveret.features.federation.federation import Federation, federation_of
from leveret.features.federation.upstream import members_of, upstream_of
from leveret.features.parameters.components import component_of, parameters_of
from leveret.policy import Policy
from leveret.values import Json
from tests.harness.bench import StoredBench

from .region import Region

URI = "amqp://guest:secret@there"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "key 'uri' should be a URI, or a list of them"),
        ({"uri": "http://x"}, "it begins with neither amqp:// nor amqps://"),
        ({"uri": URI, "prefetch": 1}, "did you mean 'prefetch-count'?"),
        ({"uri": URI, "max-hops": 0}, "key 'max-hops' should be a whole number from 1"),
        ({"uri": URI, "max-hops": 1.5}, "key 'max-hops' should be a whole number from 1"),
        ({"uri": URI, "expires": "1"}, "key 'expires' should be a whole number"),
        ({"uri": URI, "queue-type": "stream"}, "one of classic, quorum"),
        ({"uri": URI, "ack-mode": "never"}, "one of on-confirm, on-publish, no-ack"),
        ([], "the value of an upstream should be an object"),
    ],
)
def test_a_wrong_upstream_is_refused_with_the_reason(value: Json, why: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        upstream_of("u", value)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "should be a list of objects"),
        (["u"], "a member of a set should be an object"),
        ([{}], "key 'upstream' should be the name of an upstream"),
        ([{"upstream": "u", "uri": URI}], "key 'uri' is not known"),
        ([{"upstream": "u", "max-hops": 0}], "from 1"),
    ],
)
def test_a_wrong_set_is_refused_with_the_reason(value: Json, why: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        members_of(value)
    assert why in str(refused.value)


def test_a_policy_may_have_one_of_the_keys() -> None:
    definition = {"federation-upstream": "u", "federation-upstream-set": "all"}
    with pytest.raises(PreconditionFailed, match="there may be one of federation-upstream and"):
        Region().broker.policies.set(Policy("p", "/", ".*", definition))


def test_passwords_are_shown_to_nobody_and_what_was_read_can_be_written_again() -> None:
    side = Region()
    component = component_of(side.broker, "federation-upstream")
    component.set("/", "u", {"uri": URI}, "guest")
    ((name, parameter),) = parameters_of(side.broker, "/")
    assert (name, parameter.shown) == ("federation-upstream", {"uri": "amqp://guest:***@there"})
    component.set("/", "u", {"uri": "amqp://guest:***@there", "max-hops": 2}, "guest")
    ((_, parameter),) = parameters_of(side.broker, "/")
    assert parameter.value == {"uri": URI, "max-hops": 2}
    component.delete("/", "u")
    with pytest.raises(NotFound):
        component.delete("/", "u")


def test_upstreams_sets_and_links_are_there_again_after_a_restart() -> None:
    stored = StoredBench()
    side = Region(stored)
    side.host.declare_exchange("f", "fanout", durable=True)
    side.upstream(max_hops=3)
    side.federation.sets.set("/", "s", [{"upstream": "up"}], "guest")
    side.federate(federation_upstream_set="s")
    assert side.link.state == "running"
    again = stored.again()
    region = Region(again)
    region.run()
    assert region.link.state == "running"
    assert region.link.upstream.max_hops == 3
    assert region.federation.sets.names("/") == ["s"]


def test_a_link_does_not_run_under_a_new_user_of_the_name_of_a_deleted_one() -> None:
    side = Region()
    side.broker.access.add_user("ann", "ann", ("administrator",))
    side.broker.access.set_permissions("ann", "/", ".*", ".*", ".*")
    side.broker.access.set_permissions("ann", "up", ".*", ".*", ".*")
    side.host.declare_exchange("fed", "topic")
    side.upstream(user="ann")
    side.federate()
    assert side.link.state == "running"
    side.broker.access.delete_user("ann")
    side.broker.access.add_user("ann", "ann", ("administrator",))
    side.broker.access.set_permissions("ann", "/", ".*", ".*", ".*")
    side.broker.access.set_permissions("ann", "up", ".*", ".*", ".*")
    side.run(1.0)
    assert (side.link.state, side.link.journey.user) == ("terminated", "")
    assert "the user who has set it was deleted" in side.link.reason
    side.upstream(user="ann")
    assert (side.link.state, side.link.reason) == ("running", "")


def test_a_node_without_upstreams_has_no_federation_and_a_deleted_virtual_host_takes_its_own() -> None:
    side = Region()
    assert side.broker.guests.find(Federation) is None
    side.upstream()
    side.federation.upstreams.set("up", "other", {"uri": "amqp:///%2F"}, "guest")
    side.broker.delete_virtual_host("up")
    assert federation_of(side.broker).upstreams.names("up") == []
    assert federation_of(side.broker).upstreams.names("/") == ["up"]
