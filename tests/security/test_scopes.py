"""Scopes in RabbitMQ's form: what each grants, and that nothing else does."""

from __future__ import annotations

import pytest

from leveret.security.scopes import Wildcard, parse

MATCHES = [
    ("*", "", True),
    ("*", "anything/at all", True),
    ("", "", True),
    ("", "a", False),
    ("a", "a", True),
    ("a", "ab", False),
    ("a*", "a", True),
    ("a*", "ba", False),
    ("*a", "ba", True),
    ("*a", "ab", False),
    ("a*a", "a", False),  # one letter is not both ends
    ("a*a", "aa", True),
    ("a*b*c", "a-b-b-c", True),
    ("a*b*c", "a-c-b", False),
    ("a*bc*c", "abc", False),  # what is in the middle ends before the end begins
    ("%2F", "/", True),
    ("%2a", "*", True),
    ("%2A", "x", False),
    ("caf%C3%A9", "café", True),
    ("a+b", "a b", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), MATCHES)
def test_a_star_stands_for_any_text(pattern: str, text: str, expected: bool):
    assert Wildcard.parse(pattern).matches(text) is expected


def test_a_pattern_of_many_stars_is_matched_in_one_pass():
    pattern = Wildcard.parse("a*" * 2000 + "b")
    assert not pattern.matches("a" * 255)
    assert pattern.matches("a" * 2000 + "b")


@pytest.mark.parametrize("pattern", ["%", "%2", "%zz", "a%G0*", "%ff"])
def test_what_is_not_percent_encoded_utf_8_is_no_pattern(pattern: str):
    with pytest.raises(ValueError, match=r"percent-encoded|decode"):
        Wildcard.parse(pattern)


GRANTS = [
    ("read:*/*", "read", "/", "q", True),
    ("read:*/*", "write", "/", "q", False),
    ("read:%2F/q", "read", "/", "q", True),
    ("read:%2F/q", "read", "blue", "q", False),
    ("read:%2F/q", "read", "/", "q2", False),
    ("write:*/amq.default", "write", "/", "amq.default", True),
    ("configure:blue/shop.*/key", "configure", "blue", "shop.in", True),
    ("tag:administrator", "configure", "/", "q", False),
]


@pytest.mark.parametrize(("scope", "permission", "host", "name", "expected"), GRANTS)
def test_a_scope_permits_one_thing_where_it_says(
    scope: str, permission: str, host: str, name: str, expected: bool
):
    granted, _ = parse([f"leveret.{scope}"], "leveret.")
    assert granted.allow(permission, host, name) is expected


@pytest.mark.parametrize(
    "scope",
    [
        "read:*/*",  # without the prefix
        "other.read:*/*",
        "leveretread:*/*",
        "leveret.READ:*/*",
        "leveret.read",
        "leveret.read:",
        "leveret.read:*",
        "leveret.read:*/*/*/*",
        "leveret.read:%zz/*",
        "leveret.*:*/*",
        "leveret.all:*/*",
        "",
    ],
)
def test_what_is_not_of_the_form_grants_nothing(scope: str):
    granted, tags = parse([scope], "leveret.")
    assert not granted.granted
    assert not granted.enter("/")
    assert tags == ()


def test_tags_come_from_scopes():
    words = ["leveret.tag:management", "leveret.tag:", "leveret.tag:a:b", "tag:no", "leveret.tag:management"]
    granted, tags = parse(words, "leveret.")
    assert tags == ("management", "a:b")
    assert not granted.enter("/"), "a tag lets nobody in"


def test_whoever_may_do_anything_in_a_virtual_host_may_enter_it():
    granted, _ = parse(["leveret.write:blue/x"], "leveret.")
    assert granted.enter("blue")
    assert not granted.enter("/")


def test_routing_keys_are_free_unless_every_scope_for_the_exchange_names_some():
    narrow, _ = parse(["write:*/news/eu.*", "read:*/*"], "")
    assert narrow.guard_keys("/", "news")
    assert narrow.allow_key("write", "/", "news", "eu.fr")
    assert not narrow.allow_key("write", "/", "news", "us.ny")
    assert not narrow.allow_key("write", "/", "other", "eu.fr")
    free, _ = parse(["write:*/news/eu.*", "write:*/news"], "")
    assert not free.guard_keys("/", "news")
    assert free.allow_key("write", "/", "news", "us.ny")
