"""The parameter of a shovel: what is accepted, what is refused with which words, and passwords that are never shown."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.config import amqp_uri as uri
from leveret.errors import PreconditionFailed
from leveret.features.parameters.passwords import with_passwords, without_passwords
from leveret.features.shovels.definition import definition_of
from leveret.features.transfers.definition import AckMode
from leveret.values import Json

GOOD: dict[str, Json] = {
    "src-uri": "amqp://",
    "src-queue": "from",
    "dest-uri": ["amqps://shop:sesame@there:5999/%2Fprod?heartbeat=7&connection_timeout=500", "amqp://other"],
    "dest-queue": "to",
}
FROM_ADDRESS: dict[str, Json] = {
    "src-protocol": "amqp10",
    "src-queue": None,
    "src-uri": "amqp://h",
    "src-address": "/queues/q",
}
TO_ADDRESS: dict[str, Json] = {
    "dest-protocol": "amqp10",
    "dest-queue": None,
    "dest-address": "/queues/q",
    "dest-uri": "amqp://h",
}


def test_ends_may_be_addresses() -> None:
    value = {name: item for name, item in {**GOOD, **FROM_ADDRESS, **TO_ADDRESS}.items() if item is not None}
    found = definition_of(value)
    assert (found.source.protocol, found.source.address) == ("amqp10", "/queues/q")
    assert (found.destination.protocol, found.destination.queue) == ("amqp10", None)
    assert found.overwrites is None


def test_what_is_overwritten_is_named_with_either_sign() -> None:
    given = {"dest-properties": {"content-type": "a/b", "group_id": "g"}, "dest-message-annotations": []}
    value = {name: item for name, item in {**GOOD, **TO_ADDRESS, **given}.items() if item is not None}
    found = definition_of(value).overwrites
    assert found is not None
    assert (found.properties, found.annotations) == ({"content_type": "a/b", "group_id": "g"}, {})


def test_a_hostname_of_1_0_is_the_virtual_host_or_the_host_or_what_is_said() -> None:
    names = [uri.parse(f"amqp://h{rest}").hostname for rest in ("", "/blue", "/%2F", "?hostname=other")]
    assert names == ["h", "vhost:blue", "vhost:/", "other"]


def test_defaults_are_those_of_rabbitmq() -> None:
    found = definition_of(GOOD)
    assert (found.ack_mode, found.prefetch, found.reconnect_s) == (AckMode.ON_CONFIRM, 1000, 5)
    assert (found.delete_after, found.forward_headers, found.source.predeclared) == (None, False, False)
    assert found.source.uris[0].is_local


def test_a_uri_has_all_its_parts() -> None:
    there, other = definition_of(GOOD).destination.uris
    assert (there.host, there.port, there.user, there.password) == ("there", 5999, "shop", "sesame")
    assert (there.virtual_host, there.heartbeat_s, there.timeout_s) == ("/prod", 7, 0.5)
    assert (there.is_secured, there.mechanism) == (True, "PLAIN")
    assert (other.port, other.user, other.virtual_host, other.is_secured) == (5672, "guest", None, False)


def test_older_names_of_keys_are_known() -> None:
    older: dict[str, Json] = {
        "prefetch-count": 5,
        "delete-after": "queue-length",
        "add-forward-headers": True,
    }
    found = definition_of({**GOOD, **older})
    assert (found.prefetch, found.delete_after, found.forward_headers) == (5, "queue-length", True)


WRONG: list[tuple[dict[str, Json], str]] = [
    ({"src-uri": None}, "key 'src-uri' should be a URI"),
    ({"src-uri": []}, "key 'src-uri' should be a URI"),
    ({"src-uri": ["amqp://", 5]}, "key 'src-uri' should be a URI"),
    ({"src-uri": "http://x"}, "neither amqp:// nor amqps://"),
    ({"src-uri": "amqp://x:port"}, "host or port"),
    ({"src-uri": "amqp://x:canary@h/a/b"}, "written %2F"),
    ({"src-uri": "amqp://u:canary@"}, "without a host it is this node"),
    ({"src-uri": "amqps://"}, "without a host it is this node"),
    ({"src-uri": "amqp://h?hearbeat=1"}, "it has the option 'hearbeat'"),
    ({"src-uri": "amqp://h?heartbeat=x"}, "its heartbeat is no whole number"),
    ({"src-uri": "amqps://h?password=canary"}, "it has the option 'password'"),
    ({"src-uri": "amqp://h?verify=no"}, "verify_none"),
    ({"src-uri": "amqp://h?auth_mechanism=x"}, "plain nor external"),
    ({"src-queue": None}, "either 'src-queue' or 'src-exchange'"),
    ({"src-exchange": "e"}, "either 'src-queue' or 'src-exchange'"),
    ({"dest-exchange": "e"}, "both 'dest-queue' and 'dest-exchange'"),
    ({"dest-queue": "q" * 256}, "at most 255 bytes"),
    ({"ack-mode": "always"}, "on-confirm, on-publish, no-ack"),
    ({"src-protocol": "amqp2"}, "amqp091, amqp10, local"),
    ({"src-protocol": "amqp10"}, "key 'src-queue' is not for an end with the protocol amqp10"),
    ({"src-protocol": "amqp10", "src-queue": None}, "must specify 'src-address'"),
    ({"src-address": "/queues/q"}, "key 'src-address' is not for an end with the protocol amqp091"),
    ({"dest-properties": {"subject": "s"}}, "key 'dest-properties' is not for an end"),
    (
        {"src-protocol": "amqp10", "src-queue": None, "src-address": "/queues/q"},
        "key 'src-uri' has no host: on this node a shovel has 'src-queue' or 'src-exchange'",
    ),
    ({**FROM_ADDRESS, "src-delete-after": "queue-length"}, "does not tell how many messages wait"),
    ({**FROM_ADDRESS, "src-address": "a" * 4097}, "at most 4096 bytes"),
    ({**FROM_ADDRESS, "src-consumer-args": {"x": 1}}, "'src-consumer-args' is not for an end"),
    (
        {**TO_ADDRESS, "dest-publish-properties": {"priority": 1}},
        "'dest-publish-properties' is not for an end",
    ),
    ({**TO_ADDRESS, "dest-properties": 5}, "should be an object"),
    ({**TO_ADDRESS, "dest-properties": {"subjekt": "s"}}, "did you mean 'subject'?"),
    ({**TO_ADDRESS, "dest-properties": {"subject": 5}}, "should be a text"),
    ({**TO_ADDRESS, "dest-properties": {"content_type": "ä"}}, "should be a text"),
    ({**TO_ADDRESS, "dest-properties": {"creation_time": True}}, "should be a number"),
    ({**TO_ADDRESS, "dest-properties": {"creation_time": -1}}, "should be a number"),
    (
        {**TO_ADDRESS, "dest-properties": {"group_sequence": 1 << 32}},
        "should be a number from 0 to 4294967295",
    ),
    ({**TO_ADDRESS, "dest-application-properties": {"a": []}}, "a text, a number, true or false"),
    ({**TO_ADDRESS, "dest-application-properties": {"a": None}}, "a text, a number, true or false"),
    ({**TO_ADDRESS, "dest-application-properties": {"a": 1 << 63}}, "a text, a number, true or false"),
    ({**TO_ADDRESS, "dest-application-properties": {"a": float("inf")}}, "a text, a number, true or false"),
    ({**TO_ADDRESS, "dest-application-properties": {str(n): n for n in range(101)}}, "more than 100 names"),
    ({**TO_ADDRESS, "dest-message-annotations": {"a": 1}}, "does not begin with 'x-'"),
    ({"src-prefetch-count": -1}, "a number from 0"),
    ({"src-prefetch-count": True}, "a number from 0"),
    ({"reconnect-delay": "never"}, "a number from 0"),
    ({"src-delete-after": "later"}, "'never', 'queue-length' or a number"),
    ({"src-predeclared": "yes"}, "true or false"),
    ({"src-queue-args": 5}, "should be an object"),
    ({"src-qeue": "x"}, "did you mean 'src-queue'?"),
    ({"dest-publish-properties": 5}, "should be an object"),
    ({"dest-publish-properties": {"delivery_mode": 3}}, "a number from 1 to 2"),
    ({"dest-publish-properties": {"delivery_mode": "2"}}, "a number from 1 to 2"),
    ({"dest-publish-properties": {"priority": True}}, "a number from 0 to 255"),
    ({"dest-publish-properties": {"expiration": 60000}}, "a text such as"),
    ({"dest-publish-properties": {"expiration": "soon"}}, "a text such as"),
    ({"dest-publish-properties": {"expiration": "9" * 5000}}, "a text such as"),
    ({"dest-publish-properties": {"content_type": "x" * 256}}, "at most 255 bytes"),
    ({"dest-publish-properties": {"user_id": "guest"}}, "the publisher of a message"),
    ({"dest-publish-properties": {"headers": {}}}, "dest-add-forward-headers"),
    ({"dest-publish-properties": {"app-id": "x"}}, "did you mean 'app_id'?"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_is_wrong_is_refused_with_words_and_without_passwords(
    changes: dict[str, Json], words: str
) -> None:
    value = {name: item for name, item in {**GOOD, **changes}.items() if item is not None}
    with pytest.raises(PreconditionFailed) as refused:
        definition_of(value)
    assert words in str(refused.value)
    assert "canary" not in str(refused.value)


def test_passwords_are_hidden_and_put_back() -> None:
    shown = without_passwords(GOOD)
    assert "sesame" not in json.dumps(shown)
    assert "sesame" not in repr(definition_of(GOOD))
    assert with_passwords(shown, GOOD) == GOOD
    changed = {**shown, "dest-queue": "another"}
    assert with_passwords(changed, GOOD) == {**GOOD, "dest-queue": "another"}


MISTAKEN = [
    "amqp:u:canary@h",
    "amqp:/u:canary@h",
    "amqp//u:canary@h",
    "amqp:\\\\u:canary@h",
    "u:canary@h",
    "amqp://u:canary",
    "amqp://u:canary/v",
    "amqps://u:canary%40h/v/w",
    "amqp://u%3Acanary@h/a/b",
    "amqp://u:ca/nary@h:5x",
    "amqps://u@h?keyfile=x&passphrase=canary",
    "amqps://u@h?certfile=x&keyfile_password=canary&verify=x",
    "ftp://u:canary@h",
]


@pytest.mark.parametrize("text", MISTAKEN)
def test_a_uri_with_a_mistake_is_told_without_what_was_meant_as_its_password(text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        uri.parse(text)
    assert "nary" not in str(refused.value)
    assert "***" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://u:secret@h:1/a/b", "amqp://u:***@h:1/a/b"),
        ("amqp://h:5672/a/b", "amqp://h:5672/a/b"),
        ("amqp://h?heartbeat=soon", "amqp://h?heartbeat=soon"),
        ("amqp://[::1]:5672/a/b", "amqp://[::1]:5672/a/b"),
        ("http://h/x", "http://h/x"),
    ],
)
def test_what_is_wrong_with_a_uri_can_be_seen(text: str, shown: str) -> None:
    with pytest.raises(PreconditionFailed, match=re.escape(f"'{shown}'")):
        uri.parse(text)


def test_a_hidden_password_of_another_uri_is_missing() -> None:
    for value in ({"dest-uri": "amqp://shop:***@elsewhere"}, {"dest-uri": ["amqps://x:***@there"]}):
        with pytest.raises(PreconditionFailed, match="is missing"):
            with_passwords(value, GOOD)  # type: ignore[arg-type]


@given(st.text(max_size=60), st.text(min_size=1, max_size=20).filter(lambda each: each not in uri.HIDDEN))
def test_no_uri_shows_its_password_or_fails_in_another_way(rest: str, user: str) -> None:
    text = f"amqp://{user}:canary-in-a-mine@{rest}"
    said = uri.hidden(text)
    try:
        found = uri.parse(text)
        said += found.shown + repr(found)
    except PreconditionFailed as refused:
        said += str(refused)
    assert "canary" not in said
