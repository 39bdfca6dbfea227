"""Virtual hosts, users, permissions, policies, parameters and limits over HTTP: made, told, changed, kept, deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leveret.config.config import parse
from leveret.protocols.http.server.portioned_answers import PAUSE_S
from leveret.security.passwords import PasswordHash
from leveret.values import Json
from tests.harness.passwords import authenticate_password
from tests.http.management.office import ABSENT, Office, told

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
NOT_THERE = (404, "Not Found")


# Virtual hosts.


def test_a_virtual_host_is_made_described_and_kept(office: Office) -> None:
    assert office.put("/api/vhosts/shop", {"description": "All orders", "tags": "live,eu"}).status == 201
    assert office.put("/api/vhosts/shop", {"tracing": True}).status == 204
    host = office.again().get("/api/vhosts/shop")
    assert (host["name"], host["description"], host["tags"]) == ("shop", "All orders", ["live", "eu"])
    assert host["metadata"] == {"description": "All orders", "tags": ["live", "eu"]}
    assert (host["tracing"], host["cluster_state"]) == (True, {"leveret": "running"})
    assert office.delete("/api/vhosts/shop").status == 204
    assert told(office.delete("/api/vhosts/shop")) == NOT_THERE
    assert told(office.again().ask("GET", "/api/vhosts/shop")) == NOT_THERE


def test_the_default_type_of_queues_is_set_shown_and_kept(office: Office) -> None:
    assert office.get("/api/vhosts/%2F")["default_queue_type"] == "classic"
    assert office.put("/api/vhosts/shop", {"default_queue_type": "quorum"}).status == 201
    assert office.put("/api/vhosts/shop", {"description": "All orders"}).status == 204  # it stays
    host = (office := office.again()).get("/api/vhosts/shop")
    assert (host["default_queue_type"], host["metadata"]["default_queue_type"]) == ("quorum", "quorum")
    assert office.put("/api/queues/shop/q", {}).status == 201
    assert office.put("/api/queues/shop/q", {"arguments": {"x-queue-type": "quorum"}}).status == 204
    queue = office.get("/api/queues/shop/q")
    assert (queue["type"], queue["arguments"]) == ("quorum", {"x-queue-type": "quorum"})
    assert office.put("/api/vhosts/shop", {"default_queue_type": None}).status == 204
    assert office.again().get("/api/vhosts/shop")["default_queue_type"] == "classic"


def test_a_default_type_that_is_none_is_refused_and_nothing_is_made(office: Office) -> None:
    response = office.put("/api/vhosts/shop", {"default_queue_type": "mirrored"})
    assert told(response) == (400, "mirrored is not a valid queue type")
    assert told(office.ask("GET", "/api/vhosts/shop")) == NOT_THERE


def test_whoever_makes_a_virtual_host_may_do_all_in_it(office: Office) -> None:
    office.put("/api/vhosts/shop")
    assert office.get("/api/permissions/shop/boss") == {"user": "boss", "vhost": "shop", **ALL}
    office.delete("/api/permissions/shop/boss")
    office.put("/api/vhosts/shop")  # it is there: nothing is given again
    assert told(office.ask("GET", "/api/permissions/shop/boss")) == NOT_THERE


def test_only_what_a_user_may_enter_is_listed_for_him(office: Office) -> None:
    def seen(user: str) -> list[str]:
        return [host["name"] for host in office.get("/api/vhosts", user)]

    assert (seen("boss"), seen("watcher")) == (["/", "closed"], ["/", "closed"])
    assert (seen("maker"), seen("clerk")) == (["/"], ["/"])
    for name in ("closed", "none"):  # he is not told which of them is there
        response = office.ask("GET", f"/api/vhosts/{name}", user="clerk")
        assert told(response) == (401, "User not authorised to access virtual host")
    assert told(office.ask("GET", "/api/vhosts/none", user="watcher")) == NOT_THERE


def test_messages_of_a_virtual_host_are_counted(office: Office) -> None:
    office.queue("q")
    office.site.publish("", "q", b"1", b"2")
    host = office.get("/api/vhosts/%2F")
    assert (host["messages"], host["messages_ready"], host["messages_unacknowledged"]) == (2, 2, 0)


def test_a_virtual_host_can_be_started_where_it_is(office: Office) -> None:
    assert office.post("/api/vhosts/%2F/start/leveret").status == 204
    assert told(office.post("/api/vhosts/%2F/start/x")) == (400, "Request to node x failed with nodedown")
    assert told(office.post("/api/vhosts/none/start/leveret")) == NOT_THERE


# Users.


def test_a_user_is_made_with_a_password_or_a_hash_or_neither(office: Office) -> None:
    known = PasswordHash.of("open", b"salt")
    assert office.put("/api/users/ann", {"password": "open", "tags": "management"}).status == 201
    hashed = {"password_hash": known.text, "hashing_algorithm": known.algorithm, "tags": ["a", "b"]}
    assert office.put("/api/users/bob", hashed).status == 201
    assert office.put("/api/users/eve", {"tags": ""}).status == 201
    after = office.again()
    access = after.broker.access
    assert [authenticate_password(access, name, "open") is not None for name in ("ann", "bob", "eve")] == [
        True,
        True,
        False,
    ]
    bob = after.get("/api/users/bob")
    assert bob == {"name": "bob", **hashed, "limits": {}}
    assert after.get("/api/users/eve")["password_hash"] == ""
    assert "open" not in str(after.get("/api/users/ann"))


def test_a_users_tags_stay_in_the_order_given(office: Office) -> None:
    for tags in ("policymaker,management,monitoring", ["policymaker", "management", "monitoring"]):
        office.put("/api/users/ann", {"password": "open", "tags": tags})
        for desk in (office, office.again()):
            assert desk.get("/api/users/ann")["tags"] == ["policymaker", "management", "monitoring"]


def test_a_users_password_is_changed_and_permissions_stay(office: Office) -> None:
    office.put("/api/users/ann", {"password": "old", "tags": "x"})
    office.put("/api/permissions/%2F/ann", ALL)
    office.put("/api/user-limits/ann/max-channels", {"value": 3})
    assert office.put("/api/users/ann", {"password": "new", "tags": ""}).status == 204
    access = office.broker.access
    assert authenticate_password(access, "ann", "old") is None
    assert authenticate_password(access, "ann", "new") is not None
    assert office.get("/api/users/ann")["limits"] == {"max-channels": 3}
    assert office.get("/api/users/ann/permissions") == [{"user": "ann", "vhost": "/", **ALL}]


WRONG_USERS: dict[str, tuple[Any, object]] = {
    "no tags": ({"password": "x"}, "tags_not_present"),
    "both": (
        {"password": "x", "password_hash": "y", "tags": ""},
        "both_password_and_password_hash_are_provided",
    ),
    "no text": ({"password": 5, "tags": ""}, "password_not_string"),
    "no hash": ({"password_hash": "!", "tags": ""}, "the password hash is not base64"),
    "no tag": ({"password": "x", "tags": 7}, ["not_list_of_strings", "tags"]),
    "no object": (["x"], "not_json"),
    "half a pair": ({"password": "x", "tags": "\ud800"}, "not_utf8"),
}


@pytest.mark.parametrize("why", WRONG_USERS)
def test_a_user_who_cannot_be_made_is_not(office: Office, why: str) -> None:
    content, reason = WRONG_USERS[why]
    response = office.put("/api/users/ann", content)
    assert (response.status, response.content["error"], response.content["reason"]) == (
        400,
        "bad_request",
        reason,
    )
    assert office.broker.access.user("ann") is None


def test_users_are_deleted_one_by_one_or_together(office: Office) -> None:
    for name in ("a", "b", "c"):
        office.put(f"/api/users/{name}", {"tags": ""})
    without = [user["name"] for user in office.get("/api/users/without-permissions")]
    assert without == ["a", "b", "c", "watcher"]
    refused = office.post("/api/users/bulk-delete", {"users": ["a", "none"]})
    assert told(refused) == (400, ["no_such_user", "none"])
    assert office.broker.access.user("a") is not None
    assert office.post("/api/users/bulk-delete", {"users": ["a", "b"]}).status == 204
    assert office.delete("/api/users/c").status == 204
    assert told(office.delete("/api/users/c")) == NOT_THERE
    assert [user.name for user in office.again().broker.access.users()] == [
        "boss",
        "clerk",
        "maker",
        "plain",
        "watcher",
    ]


def test_a_change_of_what_the_file_says_is_told_to_end_with_the_node(office: Office) -> None:
    told_so = office.put("/api/users/clerk", {"password": "other", "tags": ""})
    assert told_so.headers["Leveret-Holds"] == "until restart; the configuration file says otherwise"
    assert "Leveret-Holds" in office.delete("/api/permissions/%2F/clerk").headers
    assert "Leveret-Holds" not in office.put("/api/users/ann", {"tags": ""}).headers
    assert authenticate_password(office.broker.access, "clerk", "other") is not None
    after = office.again()
    assert authenticate_password(after.broker.access, "clerk", "sesame") is not None
    assert after.get("/api/permissions/%2F/clerk")["read"] == "^none$"


BOUND = {"expires": 1}
FILED: dict[str, Any] = {
    "users": [{"name": "boss", "password": "sesame", "tags": "administrator"}],
    "vhosts": [{"name": "/"}, {"name": "shop"}],
    "permissions": [{"user": "boss", "vhost": "/", "configure": "", "write": "", "read": ".*"}],
    "policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {"expires": 90000}}],
    "parameters": [
        {"component": "operator_policy", "name": "o", "vhost": "/", "value": {"pattern": "", "definition": BOUND}},
        {"component": "vhost-limits", "name": "limits", "vhost": "shop", "value": {"max-queues": 5}},
    ],
    "global_parameters": [{"name": "tool", "value": 1}],
    "exchanges": [{"name": "x", "vhost": "/", "type": "direct"}],
    "queues": [{"name": "q", "vhost": "/"}],
    "bindings": [{"source": "x", "vhost": "/", "destination": "q", "routing_key": "k"}],
}  # fmt: skip
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
CHANGES: list[tuple[str, str, Json, str]] = [
    ("PUT", "users/boss", {"password": "sesame", "tags": "administrator"}, "user 'boss'"),
    ("PUT", "permissions/%2F/boss", ALL, "permissions of user 'boss' in vhost '/'"),
    ("DELETE", "vhosts/shop", None, "vhost 'shop'"),
    ("PUT", "vhost-limits/shop/max-queues", {"value": 7}, "vhost 'shop'"),
    ("DELETE", "policies/%2F/p", None, "policy 'p' in vhost '/'"),
    ("DELETE", "operator-policies/%2F/o", None, "operator policy 'o' in vhost '/'"),
    ("PUT", "global-parameters/tool", {"name": "tool", "value": 2}, "global parameter 'tool'"),
    ("DELETE", "bindings/%2F/e/x/q/q/k", None, "binding from exchange 'x' in vhost '/' to queue 'q' with the key 'k'"),
    ("DELETE", "queues/%2F/q", None, "queue 'q' in vhost '/'"),
    ("DELETE", "exchanges/%2F/x", None, "exchange 'x' in vhost '/'"),
    ("POST", "users/bulk-delete", {"users": ["boss"]}, "user 'boss'"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "content", "what"), CHANGES)
def test_a_change_of_what_a_definitions_file_sets_back_is_told(
    method: str, path: str, content: Json, what: str, tmp_path: Path
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(FILED))
    office = Office(config=parse({"definitions": {"load": [str(file)]}}))
    access = office.broker.access
    access.set_permissions("boss", "/", ".*", ".*", ".*")
    assert list(office.broker.file_objects.changed()) == []  # it is not by a client over HTTP
    answer = office.ask(method, f"/api/{path}", ABSENT if content is None else content)
    assert answer.status in (201, 204), answer.content
    assert answer.headers["Leveret-Holds"] == f"until restart; {file} says otherwise"
    assert list(office.broker.file_objects.changed()) == [(what, str(file))]
    if path == "users/boss":
        warnings = office.get("/api/users/boss")["warnings"]
        assert warnings == [f"the change holds until restart; {file} says otherwise"]
    access.add_user("boss", "sesame", ["administrator"])
    other = office.put("/api/vhosts/other")
    assert (other.status, "Leveret-Holds" in other.headers) == (201, False)


def test_the_path_of_a_file_is_for_administrators(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"queues": [{"name": "q", "vhost": "/"}]}))
    office = Office(config=parse({"definitions": {"load": [str(file)]}}))
    office.broker.access.add_user("maker", "sesame", ["management"])
    office.broker.access.set_permissions("maker", "/", ".*", ".*", ".*")
    answer = office.delete("/api/queues/%2F/q", user="maker")
    assert answer.headers["Leveret-Holds"] == "until restart; a file of definitions says otherwise"


def test_the_user_that_is_there_by_default_can_be_deleted_for_good() -> None:
    office = Office(config=parse(""))
    asking = office.broker.access
    asking.add_user("boss", "sesame", ["administrator"])
    response = office.delete("/api/users/guest")
    assert (response.status, "Leveret-Holds" in response.headers) == (204, False)
    assert office.again().broker.access.user("guest") is None


# Permissions.


def test_permissions_are_put_told_and_taken(office: Office) -> None:
    assert office.put("/api/permissions/closed/clerk", ALL).status == 201
    assert office.put("/api/permissions/closed/clerk", {**ALL, "read": "^r"}).status == 204
    expected = {"user": "clerk", "vhost": "closed", **ALL, "read": "^r"}
    assert office.get("/api/permissions/closed/clerk") == expected
    assert expected in office.get("/api/permissions")
    assert office.get("/api/vhosts/closed/permissions") == [expected]
    assert office.again().get("/api/permissions/closed/clerk") == expected
    assert office.delete("/api/permissions/closed/clerk").status == 204
    assert told(office.delete("/api/permissions/closed/clerk")) == NOT_THERE


def test_permissions_that_mean_nothing_are_refused(office: Office) -> None:
    path = "/api/permissions/closed/clerk"
    assert told(office.put(path, {"configure": ".*"})) == (400, "[{key_missing,read},{key_missing,write}]")
    response = office.put(path, {**ALL, "read": "("})
    assert response.status == 400
    assert "is not a regular expression" in str(response.reason)
    for where in ("none/clerk", "closed/none"):
        refused = office.put(f"/api/permissions/{where}", ALL)
        assert told(refused) == (400, "vhost_or_user_not_found")
    assert told(office.ask("GET", path)) == NOT_THERE


def test_topic_permissions_are_put_told_and_taken(office: Office) -> None:
    path = "/api/topic-permissions/%2F/clerk"
    said = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert office.put(path, said).status == 201
    assert office.put(path, {**said, "exchange": ""}).status == 201
    assert office.put(path, said).status == 204
    rows = [
        {"user": "clerk", "vhost": "/", **said, "exchange": exchange}
        for exchange in ("amq.default", "amq.topic")
    ]
    for where in (path, "/api/users/clerk/topic-permissions", "/api/vhosts/%2F/topic-permissions"):
        assert office.get(where) == rows
    assert office.delete(path, {"exchange": "amq.topic"}).status == 204
    assert office.get(path) == rows[:1]
    assert office.put(path, said).status == 201
    assert office.delete(f"{path}/amq.topic").status == 204
    assert told(office.delete(f"{path}/amq.topic")) == NOT_THERE
    assert office.get(path) == rows[:1]
    assert office.delete(path).status == 204
    assert told(office.delete(path)) == told(office.ask("GET", path)) == NOT_THERE


# Policies.


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_policy_holds_until_it_is_deleted(office: Office, kind: str) -> None:
    queue, path = office.queue("q"), f"/api/{kind}/%2F/p"
    said = {"pattern": "^q", "definition": {"max-length": 5}}
    assert office.put(path, said).status == 201
    assert queue.limits.max_length == 5
    assert office.put(path, {**said, "definition": {"max-length": 7}, "priority": 2}).status == 204
    assert queue.limits.max_length == 7
    row = {
        "vhost": "/",
        "name": "p",
        "pattern": "^q",
        "apply-to": "all",
        "definition": {"max-length": 7},
        "priority": 2,
        "warnings": [],
    }
    after = office.again()
    assert after.get(path) == row
    assert after.get(f"/api/{kind}") == after.get(f"/api/{kind}/%2F") == [row]
    assert office.delete(path).status == 204
    assert queue.limits.max_length is None
    assert told(office.delete(path)) == told(office.ask("GET", path)) == NOT_THERE


def test_others_have_their_turn_while_queues_learn_of_a_policy_and_all_of_them_do(office: Office) -> None:
    queues = [office.host.declare_queue(f"q{number}") for number in range(1100)]
    body = b'{"pattern": "^q", "definition": {"max-length": 5}}'
    asking = office.asking("PUT", "/api/policies/%2F/p", body)
    assert asking.waits
    late = office.host.declare_queue("q-late")
    asking.hang_up()  # that is no reason to stop half way
    for _ in range(20):
        office.site.advance(PAUSE_S)
    assert {queue.limits.max_length for queue in (*queues, late)} == {5}


WRONG_POLICIES: dict[str, tuple[dict[str, Any], str]] = {
    "no definition": ({"pattern": "x"}, "[{key_missing,definition}]"),
    "empty": ({"pattern": "x", "definition": {}}, "the definition is empty"),
    "unknown": ({"pattern": "x", "definition": {"y": 1}}, "'y' is not one of"),
    "pattern": ({"pattern": "(", "definition": {"expires": 1}}, "is not a regular expression"),
    "apply-to": (
        {"pattern": "x", "definition": {"expires": 1}, "apply-to": "z"},
        "apply-to 'z' unrecognised",
    ),
    "priority": ({"pattern": "x", "definition": {"expires": 1}, "priority": "z"}, "not_integer"),
}


@pytest.mark.parametrize("why", WRONG_POLICIES)
def test_a_policy_that_means_nothing_is_refused(office: Office, why: str) -> None:
    content, words = WRONG_POLICIES[why]
    response = office.put("/api/policies/%2F/p", content)
    assert response.status == 400
    assert words in str(response.reason)
    assert office.get("/api/policies") == []


def test_policymakers_make_policies_where_they_may_enter(office: Office) -> None:
    said = {"pattern": "^q", "definition": {"max-length": 5}}
    assert office.put("/api/policies/%2F/p", said, "maker").status == 201
    assert [row["name"] for row in office.get("/api/policies/%2F", "clerk")] == ["p"]
    refused = (401, "User not authorised to access object")
    assert told(office.put("/api/policies/closed/p", said, "maker")) == refused
    assert told(office.put("/api/policies/none/p", said, "maker")) == refused
    assert told(office.put("/api/policies/%2F/p", said, "clerk")) == refused
    assert told(office.put("/api/policies/%2F/p", said, "watcher")) == refused
    not_his = (401, "Not administrator user")
    assert told(office.put("/api/operator-policies/%2F/p", said, "maker")) == not_his
    assert told(office.delete("/api/operator-policies/%2F/p", user="maker")) == not_his
    limits = {"value": {"max-queues": 1}}
    assert told(office.put("/api/parameters/vhost-limits/%2F/limits", limits, "maker")) == not_his
    assert office.delete("/api/policies/%2F/p", user="maker").status == 204


TAKING = {"pattern": "^q", "definition": {"message-ttl": 1, "dead-letter-exchange": "mine"}}


def test_a_policymaker_may_by_default_send_messages_of_queues_elsewhere(office: Office) -> None:
    """As RabbitMQ has it."""
    assert office.put("/api/policies/%2F/p", TAKING, "maker").status == 201


def test_where_it_is_checked_dead_letters_need_the_permission_to_read_everything(office: Office) -> None:
    office.broker.access.checks_policies = True
    refused = office.put("/api/policies/%2F/p", TAKING, "maker")
    assert refused.status == 401
    assert "user 'maker' needs the permission to read '.*' in vhost '/'" in str(refused.reason)
    assert office.get("/api/policies/%2F") == []
    assert (
        office.put("/api/policies/%2F/p", {"pattern": "^q", "definition": {"message-ttl": 1}}, "maker").status
        == 201
    )
    office.broker.access.set_permissions("maker", "/", "", "^mine$", ".*")
    assert office.put("/api/policies/%2F/p", TAKING, "maker").status == 204
    office.broker.access.set_permissions("maker", "/", "", "^other$", ".*")
    assert office.put("/api/policies/%2F/p", TAKING, "maker").status == 401
    assert office.put("/api/policies/%2F/p", TAKING, "boss").status == 204


# Parameters.


def test_the_parameters_of_the_components_that_are_here(office: Office) -> None:
    assert office.put("/api/parameters/vhost-limits/%2F/limits", {"value": {"max-queues": 3}}).status == 201
    value = {"pattern": "^q", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
    assert office.put("/api/parameters/operator_policy/%2F/o", {"value": value}).status == 201
    assert office.put("/api/parameters/operator_policy/%2F/o", {"value": value}).status == 204
    limits = {"component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max-queues": 3}}
    operator = {"component": "operator_policy", "vhost": "/", "name": "o", "value": value}
    assert office.get("/api/parameters") == [operator, limits]
    assert office.get("/api/parameters/vhost-limits") == [limits]
    assert office.get("/api/parameters/operator_policy/%2F", "maker") == [operator]
    assert office.get("/api/parameters/operator_policy/%2F/o") == operator
    assert office.host.limits.max_queues == 3
    assert [policy.name for policy in office.broker.policies.list_operator("/")] == ["o"]
    for path in ("vhost-limits/%2F/limits", "operator_policy/%2F/o"):
        assert office.delete(f"/api/parameters/{path}").status == 204
        assert told(office.delete(f"/api/parameters/{path}")) == NOT_THERE
    assert office.get("/api/parameters") == []
    assert office.host.limits.max_queues is None


WRONG_PARAMETERS: dict[str, tuple[Any, object]] = {
    "shovel/%2F/s": (
        {"value": {}},
        "Validation failed\n\nkey 'src-uri' should be a URI, or a list of them\n",
    ),
    "federation/%2F/s": (
        {"value": {}},
        "Validation failed\n\ncomponent federation not found: upstreams and policies say all that "
        "there is to say\n",
    ),
    "policy/%2F/p": ({"value": {}}, "policies may not be set using this method"),
    "vhost-limits/%2F/limits": (
        {"value": {"max-x": 1}},
        'Validation failed\n\nUnrecognised terms [{<<"max-x">>,1}] in limits\n',
    ),
    "vhost-limits/%2F/other": (
        {"value": {}},
        "Validation failed\n\nthe limits of a vhost are called 'limits', not 'other'\n",
    ),
    "operator_policy/%2F/o": ({"value": {"pattern": "x"}}, "[{key_missing,definition}]"),
    "operator_policy/%2F/p": ({}, "[{key_missing,value}]"),
}


@pytest.mark.parametrize("path", WRONG_PARAMETERS)
def test_parameters_of_nobody_are_refused(office: Office, path: str) -> None:
    content, reason = WRONG_PARAMETERS[path]
    assert told(office.put(f"/api/parameters/{path}", content)) == (400, reason)
    assert office.get("/api/parameters") == []


def test_global_parameters_are_whatever_tools_want_to_remember(office: Office) -> None:
    value = {"a": [1, None, 2.5, "ü"]}
    assert office.put("/api/global-parameters/tool", {"value": value}).status == 201
    assert office.put("/api/global-parameters/tool", {"value": value}).status == 204
    after = office.again()
    assert after.get("/api/global-parameters/tool", "maker") == {"name": "tool", "value": value}
    assert after.get("/api/global-parameters") == [{"name": "tool", "value": value}]
    assert after.delete("/api/global-parameters/tool").status == 204
    assert told(after.delete("/api/global-parameters/tool")) == NOT_THERE
    assert told(after.again().ask("GET", "/api/global-parameters/tool")) == NOT_THERE


def test_policymakers_keep_global_parameters_and_others_do_not(office: Office) -> None:
    path = "/api/global-parameters/tool"
    assert office.put(path, {"value": 1}, "maker").status == 201
    assert told(office.put(path, {"name": "tool"}, "maker")) == (400, "[{key_missing,value}]")
    for user in ("watcher", "clerk"):
        assert office.ask("GET", path, user=user).status == 401
        assert office.put(path, {"value": 2}, user).status == 401
        assert office.ask("DELETE", path, user=user).status == 401
    exported = office.get("/api/definitions")
    assert exported["global_parameters"] == [{"name": "tool", "value": 1}]
    assert office.ask("DELETE", path, user="maker").status == 204
    assert office.post("/api/definitions", exported).status == 204
    assert office.get("/api/global-parameters", "maker") == [{"name": "tool", "value": 1}]


def test_the_cluster_has_a_name(office: Office) -> None:
    assert office.get("/api/cluster-name", "clerk") == {"name": "leveret"}
    assert office.put("/api/cluster-name", {"name": "harehouse"}).status == 204
    assert office.again().get("/api/cluster-name") == {"name": "harehouse"}


# Limits.


def test_limits_of_a_virtual_host_come_one_by_one(office: Office) -> None:
    assert office.put("/api/vhost-limits/%2F/max-queues", {"value": 1}).status == 204
    assert office.put("/api/vhost-limits/%2F/max-connections", {"value": -1}).status == 204
    row = {"vhost": "/", "value": {"max-queues": 1, "max-connections": -1}}
    assert office.get("/api/vhost-limits") == office.get("/api/vhost-limits/%2F") == [row]
    assert office.get("/api/vhost-limits/closed") == []
    assert office.delete("/api/vhost-limits/%2F/max-queues").status == 204
    assert office.delete("/api/vhost-limits/%2F/max-connections").status == 204
    assert office.get("/api/vhost-limits") == []
    for value in ("x", None, True, 1 << 40):
        assert office.put("/api/vhost-limits/%2F/max-queues", {"value": value}).status == 400
    assert office.put("/api/vhost-limits/%2F/max-x", {"value": 1}).status == 400
    assert told(office.put("/api/vhost-limits/none/max-queues", {"value": 1})) == NOT_THERE


@pytest.mark.parametrize("whose", ["vhost-limits/%2F", "user-limits/plain"])
def test_a_publish_rate_is_set_and_cleared_but_is_never_0(office: Office, whose: str) -> None:
    path = f"/api/{whose}/max-publish-rate"
    assert office.put(path, {"value": 100}).status == 204
    (row,) = office.get(f"/api/{whose}")
    assert row["value"] == {"max-publish-rate": 100}
    assert office.put(path, {"value": 0}).status == 400
    assert office.put(path, {"value": -1}).status == 204
    assert office.delete(path).status == 204
    assert office.get(f"/api/{whose}") == []


def test_limits_of_a_user_come_one_by_one(office: Office) -> None:
    assert office.put("/api/user-limits/plain/max-connections", {"value": 2}).status == 204
    row = {"user": "plain", "value": {"max-connections": 2}}
    assert office.get("/api/user-limits") == office.get("/api/user-limits/plain") == [row]
    plain = office.broker.access.user("plain")
    assert plain is not None
    assert (plain.limits.max_connections, plain.password is not None) == (2, True)
    assert office.delete("/api/user-limits/plain/max-connections").status == 204
    assert office.get("/api/user-limits") == []
    refused = office.put("/api/user-limits/none/max-connections", {"value": 1})
    assert told(refused) == (400, ["no_such_user", "none"])
    assert office.put("/api/user-limits/plain/max-x", {"value": 1}).status == 400
    assert told(office.ask("GET", "/api/user-limits/none")) == NOT_THERE


# Patterns that could take long.


def test_a_pattern_that_python_would_take_years_for_is_quick() -> None:
    office = Office()
    evil = {"pattern": "(a+)+$", "definition": {"max-length": 10}}
    assert office.put("/api/policies/%2F/evil", evil, user="maker").status == 201
    assert office.put(f"/api/queues/%2F/{'a' * 60}!", {}).status == 201


def test_only_administrators_may_have_patterns_that_can_take_long() -> None:
    office = Office()
    evil = {"pattern": "(?!x)(a|aa)*$", "definition": {"max-length": 10}}
    refused = office.put("/api/policies/%2F/evil", evil, user="maker")
    assert (refused.status, "only administrators" in refused.json["reason"]) == (400, True)
    assert office.put("/api/policies/%2F/evil", evil).status == 201
