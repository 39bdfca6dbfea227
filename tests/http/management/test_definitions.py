"""Definitions over HTTP: what is exported, imported and exported again is the same; what is wrong is named."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from leveret.config.config import parse
from leveret.limits import QueueType, UserLimits, VirtualHostLimits
from leveret.policy import ApplyTo, Policy
from leveret.protocols.http.management import definitions
from leveret.protocols.http.server.portioned_answers import PAUSE_S
from leveret.security.passwords import PasswordHash
from leveret.selectors.parser import compile_selector
from leveret.virtual_host import Description
from tests.harness.http import Line
from tests.http.management.office import Office, told

EMPTY = parse("")
ALL = "/api/definitions"


def full() -> Office:
    """A broker with something of every kind."""
    office = Office(config=EMPTY)
    broker = office.broker
    shop = broker.add_virtual_host("shop", VirtualHostLimits(max_queues=100))
    shop.describe(Description('"All" <orders>', ("live", "eu")))
    shop.set_tracing(True)
    broker.access.add_user("boss", "sesame", ["administrator"])
    broker.access.add_user("größe", None, ["a", "b"], UserLimits(max_channels=3))
    broker.access.set_permissions("boss", "shop", ".*", "^a|b$", "")
    broker.access.set_topic_permissions("boss", "shop", "amq.topic", "^a", "{username}")
    broker.parameters.set("tool", {"a": [1, None, "ü"]})
    broker.policies.set(Policy("p", "shop", "^q", {"max-length": 5, "overflow": "reject-publish"}, 2))
    broker.policies.set(Policy("streams", "/", "", {"max-age": "7D"}, 0, ApplyTo.STREAMS))
    broker.policies.set_operator(Policy("o", "shop", "^q", {"expires": 1000}, 1, ApplyTo.QUEUES))
    alternate = shop.declare_exchange("alternate", "fanout", durable=True)
    topics = shop.declare_exchange(
        "e/ä b", "topic", durable=True, internal=True, arguments={"alternate-exchange": "alternate"}
    )
    queue = shop.declare_queue(
        "q", durable=True, arguments={"x-max-priority": 5, "x-dead-letter-exchange": ""}
    )
    shop.declare_queue("s", durable=True, arguments={"x-queue-type": "stream", "x-max-age": "1h"})
    shop.declare_queue("amq.gen-x", auto_delete=True, generated=True)
    shop.declare_queue("sieve", durable=True, selector=compile_selector("color = 'red'"))
    for key in ("b.#", "a.*"):  # bindings stay in their order
        shop.bind(topics, queue, key)
    shop.bind(shop.exchange("amq.headers"), queue, "", {"x-match": "any", "n": 1, "t": "x", "on": True})
    shop.bind(topics, alternate, "e")
    shop.set_default_queue_type(QueueType.QUORUM)  # which changes no queue, here or where this is imported
    return office


def exported(office: Office, path: str = ALL) -> dict[str, Any]:
    return dict(office.get(path))


def fresh() -> Office:
    office = Office(config=EMPTY)
    office.broker.access.add_user("boss", "sesame", ["administrator"])
    return office


def test_an_import_of_an_export_is_the_same_broker() -> None:
    before = exported(full())
    office = fresh()
    assert office.post(ALL, before).status == 204
    assert exported(office) == before
    sections = {name: len(items) for name, items in before.items() if isinstance(items, list)}
    assert sections == {
        "users": 3,
        "vhosts": 2,
        "permissions": 2,
        "topic_permissions": 1,
        "parameters": 2,
        "global_parameters": 1,
        "policies": 2,
        "queues": 4,
        "exchanges": 2,
        "bindings": 4,
    }
    after = office.again()
    assert len(exported(after)["bindings"]) == 4
    assert after.get("/api/vhosts/shop")["description"] == '"All" <orders>'


def test_an_export_is_in_the_shapes_of_rabbitmq() -> None:
    said = exported(full())
    shop = next(host for host in said["vhosts"] if host["name"] == "shop")
    assert shop["metadata"] == {
        "description": '"All" <orders>',
        "tags": ["live", "eu"],
        "default_queue_type": "quorum",
    }
    assert next(queue for queue in said["queues"] if queue["name"] == "q") == {
        "name": "q",
        "vhost": "shop",
        "durable": True,
        "auto_delete": False,
        "arguments": {"x-max-priority": 5, "x-dead-letter-exchange": "", "x-queue-type": "classic"},
    }
    assert said["bindings"][-1] == {
        "source": "e/ä b",
        "vhost": "shop",
        "destination": "alternate",
        "destination_type": "exchange",
        "routing_key": "e",
        "arguments": {},
    }
    components = {parameter["component"]: parameter["value"] for parameter in said["parameters"]}
    assert components["vhost-limits"] == {"max-queues": 100}
    assert components["operator_policy"]["definition"] == {"expires": 1000}
    assert not [exchange for exchange in said["exchanges"] if exchange["name"].startswith("amq.")]


def test_what_belongs_to_connections_is_not_exported() -> None:
    office = full()
    host = office.broker.virtual_host("shop")
    queue = host.declare_queue("mine", exclusive=True)
    host.bind(host.exchange("amq.fanout"), queue, "")
    said = exported(office)
    assert "mine" not in [each["name"] for each in said["queues"]]
    assert "mine" not in [each["destination"] for each in said["bindings"]]


def test_a_virtual_host_is_copied_under_another_name() -> None:
    office = full()
    said = exported(office, ALL + "/shop")
    assert not {"users", "vhosts", "permissions"} & said.keys()
    assert all("vhost" not in each for section in definitions.OF_VIRTUAL_HOST for each in said[section])
    office.put("/api/vhosts/copy")
    assert office.post(ALL + "/copy", said).status == 204
    assert exported(office, ALL + "/copy") == said
    assert told(office.post(ALL + "/none", said)) == (404, "Not Found")


def test_an_import_into_a_virtual_host_stays_there() -> None:
    office = full()
    queues = [{"name": "new", "vhost": "shop"}]
    users = [{"name": "thief", "password": "x", "tags": "administrator"}]
    assert office.post(ALL + "/%2F", {"queues": queues, "users": users}).status == 204
    assert office.broker.access.user("thief") is None
    assert "new" in office.broker.virtual_host("/").queues
    assert "new" not in office.broker.virtual_host("shop").queues


def test_passwords_in_a_file_are_hashed_slowly() -> None:
    office = fresh()
    assert office.post(ALL, {"users": [{"name": "ann", "password": "open", "tags": []}]}).status == 204
    ann = office.broker.access.user("ann")
    assert ann is not None
    assert ann.password is not None
    assert (ann.password.is_slow, ann.password.matches("open")) == (True, True)
    assert "open" not in json.dumps(exported(office))


def test_hashes_of_rabbitmq_are_taken_over_as_they_are() -> None:
    office = fresh()
    known = PasswordHash.of("open", b"salt", "rabbit_password_hashing_sha512")
    user = {"name": "ann", "password_hash": known.text, "hashing_algorithm": known.algorithm, "tags": "x"}
    assert office.post(ALL, {"users": [user]}).status == 204
    assert {**user, "tags": ["x"], "limits": {}} in exported(office)["users"]


def test_what_an_import_refuses_is_named_and_the_rest_is_there() -> None:
    office = full()
    queues = [
        {"name": "new", "vhost": "shop"},
        {"name": "q", "vhost": "shop", "durable": False},
        {"name": "x", "vhost": "none"},
    ]
    response = office.post(ALL, {"queues": queues})
    problems = response.content["problems"]
    assert isinstance(problems, list)
    assert (response.status, response.content["problem_count"]) == (400, 2)
    assert response.reason == problems[0]
    assert "queue 'q' in vhost 'shop' (queues[1]): inequivalent arg 'durable' for queue 'q'" in problems[0]
    assert problems[1] == "queue 'x' in vhost 'none' (queues[2]): vhost none not found"
    assert "new" in office.broker.virtual_host("shop").queues


def test_a_file_that_cannot_be_read_changes_nothing() -> None:
    office = full()
    before = exported(office)
    assert told(office.post(ALL, [])) == (400, "failed_to_parse_json")
    assert told(office.asking("POST", ALL, b"{").answer()) == (400, "not_json")
    assert told(office.asking("POST", ALL, b"[" * 200_000).answer()) == (400, "not_json")
    assert exported(office) == before


FORM = "multipart/form-data; boundary=bound"
UPLOAD = (
    b'--bound\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n'
    b'--bound\r\nContent-Disposition: form-data; name="%s"; filename="d.json"\r\nContent-Type: application/json\r\n\r\n'
    b'{"vhosts": [{"name": "v"}], "queues": [{"name": "\xc3\xa4", "vhost": "v", "arguments": []}]}\r\n--bound--\r\n'
)


def test_a_form_may_upload_the_file() -> None:
    office = fresh()
    for name, status in ((b"file", 204), (b"other", 400)):
        line = Line(office.broker, office.config, advance=office.advance)
        line.send("POST", ALL, UPLOAD % name, "boss:sesame", {"Content-Type": FORM})
        office.broker.settle()
        assert line.answer().status == status
    assert "ä" in office.broker.virtual_host("v").queues


MOVED: dict[str, Any] = {
    "vhosts": [{"name": "shop"}],
    "users": [
        {"name": "ann", "password_hash": base64.b64encode(bytes(20)).decode(), "tags": "administrator"},
        {"name": "bob", "password_hash": "se$ame", "tags": ""},
        {"name": "cid", "password_hash": "", "tags": "management"},
    ],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"}],
    "parameters": [{"component": "mqtt", "name": "up", "vhost": "shop", "value": {"uri": "amqp://"}}],
    "policies": [
        {"name": "ha", "vhost": "shop", "pattern": "", "definition": {"ha-mode": "all"}},
        {"name": "bad", "vhost": "shop", "pattern": "", "definition": {"max-lenght": 5}},
    ],
    "exchanges": [
        {"name": "h", "vhost": "shop", "type": "x-unheard-of"},
        {"name": "e", "vhost": "shop", "type": "topic"},
    ],
    "queues": [
        {"name": "q", "vhost": "shop", "arguments": {"x-queue-type": "quorum"}},
        {"name": "r", "vhost": "shop", "arguments": {"x-queue-type": "quorum"}},
    ],
    "bindings": [
        {"source": "e", "vhost": "shop", "destination": "q", "routing_key": "#"},
        {"source": "h", "vhost": "shop", "destination": "q", "routing_key": "#"},
    ],
}  # fmt: skip
OWN = "/api/leveret/definitions"


def check_report(told: dict[str, Any]) -> None:
    assert told["imported"] == {
        "vhosts": 1, "users": 2, "permissions": 1, "policies": 1, "exchanges": 1, "queues": 2, "bindings": 1,
    }  # fmt: skip
    ignored, changed, problems = told["ignored"], told["changed"], told["problems"]
    assert [each.partition(" has no effect")[0] for each in ignored] == [
        "parameter 'up' in vhost 'shop': mqtt",
        "policy 'ha' in vhost 'shop': ha-mode",
    ]
    assert changed[0].startswith("user 'ann': the password is hashed with MD5")
    assert "`leveret user password ann`" in changed[0]
    assert changed[1].startswith("queue 'q' in vhost 'shop': a quorum queue has no replicas of its own")
    assert changed[1].endswith("(1 more like it)")
    assert [each.partition(": ")[0] for each in problems] == [
        "user 'bob' (users[1].password_hash)",
        "policy 'bad' in vhost 'shop' (policies[1].definition)",
        "exchange 'h' in vhost 'shop' (exchanges[0])",
        "binding from exchange 'h' to 'q' in vhost 'shop' (bindings[1])",
    ]
    assert "did you mean max-length?" in problems[1]
    assert told["problem_count"] == 4


def test_an_import_reports_what_it_took_ignored_changed_and_refused() -> None:
    office = fresh()
    response = office.post(OWN, MOVED)
    assert response.status == 200
    assert response.content["dry_run"] is False
    check_report(dict(response.content))
    assert "se$ame" not in response.body.decode()
    host = office.broker.virtual_host("shop")
    assert {"q", "r"} <= host.queues.keys()
    ann, bob = office.broker.access.user("ann"), office.broker.access.user("bob")
    assert ann is not None
    assert (ann.password, ann.tags, bob) == (None, ("administrator",), None)


def test_a_user_that_is_there_keeps_its_password_where_a_file_has_an_md5() -> None:
    office = fresh()
    office.broker.access.add_user("ann", "sesame", [])
    office.post(OWN, MOVED)
    assert set(office.broker.access.authenticate("ann", "sesame").tags) == {"administrator"}


def test_a_dry_run_reports_the_same_and_changes_nothing() -> None:
    office = fresh()
    before = exported(office)
    told = dict(office.post(OWN + "?dry_run=true", MOVED).content)
    assert told["dry_run"] is True
    check_report(told)
    assert exported(office) == before


def test_a_dry_run_knows_what_is_there() -> None:
    office = full()
    queues = [
        {"name": "q", "vhost": "shop", "durable": False},
        {"name": "s", "vhost": "shop", "arguments": {}},
    ]
    bindings = [{"source": "e/ä b", "vhost": "shop", "destination": "q", "routing_key": "new"}]
    before = exported(office)
    told = office.post(OWN + "?dry_run=true", {"queues": queues, "bindings": bindings}).content
    assert told["imported"] == {"bindings": 1}
    assert [each.partition(":")[0] for each in told["problems"]] == [
        "queue 'q' in vhost 'shop' (queues[0])", "queue 's' in vhost 'shop' (queues[1])",
    ]  # fmt: skip
    assert exported(office) == before
    own = office.post(OWN + "/shop?dry_run=true", {"queues": [{"name": "q", "durable": False}]}).content
    assert own["problem_count"] == 1


@pytest.mark.parametrize("path", [ALL, OWN])
def test_a_strict_import_is_all_or_nothing(path: str) -> None:
    office = fresh()
    before = exported(office)
    for users in ([MOVED["users"][0]], [MOVED["users"][1]]):
        refused = office.post(path + "?strict=true", {"users": users, "vhosts": [{"name": "shop"}]})
        assert refused.status == 400
        assert str(refused.reason).startswith(f"nothing was imported: user '{users[0]['name']}'")
        assert refused.content["imported"] == {}
    assert office.post(path + "?strict=true", MOVED).status == 400
    assert exported(office) == before
    good = {"vhosts": [{"name": "shop"}], "queues": [{"name": "q", "vhost": "shop"}]}
    assert office.post(path + "?strict=true", good).status in (200, 204)
    assert "q" in office.broker.virtual_host("shop").queues


def test_an_item_that_cannot_be_read_does_not_keep_the_rest_out() -> None:
    office = full()
    queues: list[Any] = [{"name": "new", "vhost": "shop"}, {"vhost": "shop"}]
    refused = office.post(ALL, {"queues": queues})
    assert refused.status == 400
    assert "queues[1].name" in str(refused.reason)
    assert "new" in office.broker.virtual_host("shop").queues


def test_no_more_than_a_hundred_problems_are_named() -> None:
    office = fresh()
    queues = [{"name": f"q{number}", "vhost": "none"} for number in range(150)]
    response = office.post(ALL, {"queues": queues})
    problems = response.content["problems"]
    assert isinstance(problems, list)
    assert (len(problems), response.content["problem_count"]) == (100, 150)


def test_others_have_their_turn_while_much_is_exported_and_imported() -> None:
    office = fresh()
    queues = [{"name": f"q{number:04}", "vhost": "/"} for number in range(1500)]
    asking = office.asking("POST", ALL, json.dumps({"queues": queues}).encode())
    turns = 1
    while not office.host.queues:
        assert asking.waits
        office.site.advance(PAUSE_S)
        turns += 1
    assert turns > 4  # it is read for some, and then
    assert len(office.host.queues) < 1500
    assert asking.answer().status == 204
    asking = office.asking("GET", ALL)
    assert asking.waits
    office.host.delete_queue(office.host.queue("q0000"))
    names = [queue["name"] for queue in asking.answer().json["queues"]]
    assert names[-1] == "q1499"
    assert len(names) >= 1499


def test_an_import_goes_on_though_nobody_waits_for_it() -> None:
    office = fresh()
    queues = [{"name": f"q{number}", "vhost": "/"} for number in range(1500)]
    office.asking("POST", ALL, json.dumps({"queues": queues}).encode()).hang_up()
    assert len(office.host.queues) < 1500
    for _ in range(20):
        office.site.advance(PAUSE_S)
    assert len(office.host.queues) == 1500


def test_only_administrators_export_and_import() -> None:
    office = Office()
    for path in (ALL, ALL + "/%2F"):
        for user in ("maker", "watcher", "clerk"):
            assert told(office.ask("GET", path, user=user)) == (401, "Not administrator user")
            assert told(office.post(path, {}, user)) == (401, "Not administrator user")


@pytest.mark.parametrize(
    ("name", "header"),
    [("x.json", "attachment; filename=x.json"), ("a%22%0d%0ab%2f", "attachment; filename=ab"), ("%2f", None)],
)
def test_a_browser_saves_it_under_a_harmless_name(name: str, header: str | None) -> None:
    response = fresh().ask("GET", f"{ALL}?download={name}")
    assert response.headers.get("Content-Disposition") == header


HALF = "\ud800"  # of a surrogate pair: JSON can write it, and UTF-8 cannot
LONG = "ä" * 200
HUGE = 1 << 64
UNSENDABLE: dict[str, dict[str, object]] = {
    "vhost": {"vhosts": [{"name": HALF}]},
    "description": {"vhosts": [{"name": "v", "description": HALF}]},
    "user": {"users": [{"name": HALF, "password": "x"}]},
    "byte of a user": {"users": [{"name": "\udcff", "password": "x"}]},
    "tag": {"users": [{"name": "ann", "password": "x", "tags": [HALF]}]},
    "queue": {"queues": [{"name": HALF, "vhost": "/"}]},
    "argument": {"queues": [{"name": "q", "vhost": "/", "arguments": {"a": [{"b": HALF}]}}]},
    "name of an argument": {"queues": [{"name": "q", "vhost": "/", "arguments": {HALF: 1}}]},
    "exchange": {"exchanges": [{"name": HALF, "vhost": "/", "type": "direct"}]},
    "long vhost": {"vhosts": [{"name": LONG}]},
    "long queue": {"queues": [{"name": LONG, "vhost": "/"}]},
    "long exchange": {"exchanges": [{"name": LONG, "vhost": "/", "type": "direct"}]},
    "number": {"queues": [{"name": "q", "vhost": "/", "arguments": {"x-max-length": HUGE}}]},
    "nested number": {"queues": [{"name": "q", "vhost": "/", "arguments": {"a": [-HUGE]}}]},
    "policy": {"policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {"max-length": HUGE}}]},
}


@pytest.mark.parametrize("what", UNSENDABLE)
def test_what_no_client_can_be_told_is_not_imported(what: str) -> None:
    office = fresh()
    before = exported(office)
    response = office.post(ALL, UNSENDABLE[what])
    assert (response.status, response.content["problem_count"]) == (400, 1), response.content
    assert exported(office) == before


def test_a_binding_key_in_the_bytes_of_its_client_is_imported_as_it_was_exported() -> None:
    office, other = fresh(), fresh()
    host = office.broker.virtual_host("/")
    host.bind(host.exchange("amq.topic"), host.declare_queue("q", durable=True), "caf\udce9")
    assert other.post(ALL, exported(office)).status == 204
    assert exported(other)["bindings"] == exported(office)["bindings"] != []


@pytest.mark.parametrize("path", ["/api/vhosts/%FF", "/api/users/%FF"])
def test_a_name_that_is_no_text_is_refused(path: str) -> None:
    response = fresh().put(path, {"tags": "", "password": "x"})
    assert (response.status, response.content["reason"]) == (400, "not_utf8")
