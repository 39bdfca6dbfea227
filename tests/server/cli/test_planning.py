"""What has to change: nothing that need not, in an order that works, and deleted only what the file is master of."""

from __future__ import annotations

from leveret.server.topology_file.model import Topology
from leveret.server.topology_file.plan import plan
from leveret.server.topology_file.reader import from_toml

HOST = '[virtual_hosts."/"]\n'


def at_node(text: str) -> Topology:
    return from_toml((HOST + text.replace("[@", '[virtual_hosts."/".')).encode())


def steps(wanted: Topology, live: Topology, prune: bool = False) -> list[str]:
    return [f"{each.action} {each.thing}" for each in plan(wanted, live, prune)]


def test_nothing_changes_what_is_as_it_should_be():
    text = "[@queues.q]\nbindings = [{ exchange = 'x' }]\n[@exchanges.x]\n[@policies.p]\npattern = ''\ndefinition = {}"
    assert steps(at_node(text), at_node(text), prune=True) == []


def test_what_others_need_comes_first():
    text = (
        "[@queues.q]\nbindings = [{ exchange = 'x', key = 'k' }]\n[@permissions.u]\n[@exchanges.x]\n"
        "[@policies.p]\npattern = ''\ndefinition = {}\n[users.u]"
    )
    assert steps(at_node(text), from_toml(b"")) == [
        "create virtual host '/'",
        "create user 'u'",
        "create permissions of user 'u' in vhost '/'",
        "create policy 'p' in vhost '/'",
        "create exchange 'x' in vhost '/'",
        "create queue 'q' in vhost '/'",
        "create binding 'x' -> queue 'q' key 'k' in vhost '/'",
    ]


def test_policies_change_where_they_are_and_tell_how():
    wanted = at_node("[@policies.p]\npattern = 'a'\ndefinition = { max-length = 2 }")
    (change,) = plan(wanted, at_node("[@policies.p]\npattern = 'a'\ndefinition = { max-length = 1 }"))
    assert change.action == "change"
    assert change.differences == ['definition: {"max-length": 1} -> {"max-length": 2}']


def test_true_is_another_value_than_one():
    wanted = at_node("[@queues.q]\narguments = { a = true }")
    assert steps(wanted, at_node("[@queues.q]\narguments = { a = 1 }")) == ["replace queue 'q' in vhost '/'"]


def test_a_replaced_queue_gets_all_its_bindings_back():
    live = at_node("[@exchanges.x]\n[@queues.q]\nbindings = [{ exchange = 'x', key = 'mine' }]")
    wanted = at_node("[@queues.q]\ndurable = false\nbindings = [{ exchange = 'x', key = 'new' }]")
    assert steps(wanted, live) == [
        "replace queue 'q' in vhost '/'",
        "create binding 'x' -> queue 'q' key 'new' in vhost '/'",
        "create binding 'x' -> queue 'q' key 'mine' in vhost '/'",
    ]


def test_a_replaced_exchange_gets_the_bindings_at_either_end_back():
    text = (
        "[@exchanges.a]\ntype = '{}'\nbindings = [{{ exchange = 'amq.topic' }}]\n"
        "[@queues.q]\nbindings = [{{ exchange = 'a' }}, {{ exchange = 'amq.topic' }}]"
    )
    assert steps(at_node(text.format("fanout")), at_node(text.format("topic"))) == [
        "replace exchange 'a' in vhost '/'",
        "create binding 'amq.topic' -> exchange 'a' key '' in vhost '/'",
        "create binding 'a' -> queue 'q' key '' in vhost '/'",
    ]


LIVE = """
[@exchanges.shop]
[@exchanges.other]
[@queues.shop-old]
bindings = [{ exchange = 'other' }]
[@queues.shop-reply]
auto_delete = true
[@queues.other]
bindings = [{ exchange = 'shop' }]
[@policies.shop-p]
pattern = ''
definition = {}
"""


def test_only_what_the_file_manages_is_deleted_and_bindings_first():
    wanted = from_toml((HOST + "manage = '^shop'").encode())
    assert steps(wanted, at_node(LIVE), prune=True) == [
        "delete binding 'other' -> queue 'shop-old' key '' in vhost '/'",
        "delete queue 'shop-old' in vhost '/'",
        "delete exchange 'shop' in vhost '/'",
        "delete policy 'shop-p' in vhost '/'",
    ]
    assert steps(wanted, at_node(LIVE)) == []


def test_nothing_is_deleted_where_the_file_manages_nothing():
    assert steps(at_node(""), at_node(LIVE), prune=True) == []


def test_what_is_the_brokers_is_never_deleted():
    wanted = from_toml((HOST + "manage = ''").encode())
    assert steps(wanted, at_node("[@exchanges.'amq.rabbitmq.x']"), prune=True) == []


def test_a_binding_that_is_pruned_does_not_come_back_with_its_queue():
    live = at_node("[@queues.q]\nbindings = [{ exchange = 'amq.topic', key = 'old' }]")
    wanted = from_toml((HOST + "manage = 'q'\n[virtual_hosts.'/'.queues.q]\ndurable = false").encode())
    assert steps(wanted, live, prune=True) == [
        "replace queue 'q' in vhost '/'",
        "delete binding 'amq.topic' -> queue 'q' key 'old' in vhost '/'",
    ]
