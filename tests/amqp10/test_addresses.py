"""Address strings of versions 2 and 1: what each means, which are refused in which words, and what we write."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from leveret.protocols.amqp10.broker import addresses
from leveret.protocols.amqp10.broker.addresses import (
    SourceAddress,
    TargetAddress,
    exchange_address,
    queue_address,
    queue_named,
    source,
    subscription,
    target,
    to,
)
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends

from .samples import BAD_ADDRESSES

Aimed = Callable[[str], object]

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=60)
NAMES = KEYS.filter(bool)
BAD_V2 = (
    *BAD_ADDRESSES,
    *("/exchanges/x/✋", "/queues/q%G0", "/queues/q?", "/queues/q#", "/queues/q\n", "/queues/%0g"),
)


def refusal(aimed: Callable[[], object]) -> str:
    """The words after `Attach refused: `; the condition is the same for all."""
    with pytest.raises(AmqpError) as caught:
        aimed()
    assert (caught.value.condition, caught.value.ends) == ("amqp:invalid-field", Ends.LINK)
    before, _, words = caught.value.description.partition(": ")
    assert before == "Attach refused"
    return words


# Version 2.


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("/exchanges/x/rk", TargetAddress("x", "rk")),
        ("/exchanges/x", TargetAddress("x", "")),
        ("/exchanges/x/", TargetAddress("x", "")),
        ("/queues/q", TargetAddress("", "q", queue="q")),
        ("/exchanges/amq.direct/my-routing_key%2F123", TargetAddress("amq.direct", "my-routing_key/123")),
        ("/exchanges/e%2Fx/%25", TargetAddress("e/x", "%")),
        ("/queues/q%2fslash", TargetAddress("", "q/slash", queue="q/slash")),
        ("/queues/%F0%9F%91%8B", TargetAddress("", "👋", queue="👋")),
        ("/queues/a+b%20c", TargetAddress("", "a+b c", queue="a+b c")),
        (
            "/queues/-._~!$&'()*+,;=:@09azAZ",
            TargetAddress("", "-._~!$&'()*+,;=:@09azAZ", queue="-._~!$&'()*+,;=:@09azAZ"),
        ),
        ("/queues/amq.default", TargetAddress("", "amq.default", queue="amq.default")),
    ],
)
def test_s183_s184_s186_s187_s188_s212_s225_x058_targets_of_version_2(
    address: str, meant: TargetAddress, v1: bool
) -> None:
    assert target(address, v1) == to(address) == meant


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize("address", BAD_V2)
def test_s189_s190_s191_bad_targets_of_version_2(address: str, v1: bool) -> None:
    assert refusal(lambda: target(address, v1)) == f"bad_address_string '{address}'"


@pytest.mark.parametrize("encoded", ["amq%2Edefault", "%61mq.default"])
def test_s191_the_default_exchange_is_not_named_by_another_spelling(encoded: str) -> None:
    assert "bad_address_string" in refusal(lambda: target(f"/exchanges/{encoded}/q", v1=False))


@pytest.mark.parametrize("v1", [False, True])
def test_s185_s212_the_source_of_version_2_is_a_queue(v1: bool) -> None:
    assert source("/queues/q", v1) == SourceAddress("q")
    assert source("/queues/a%2Fb", v1) == SourceAddress("a/b")


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize("address", [each for each in BAD_V2 if each.startswith("/queues/")])
def test_s194_a_source_that_is_not_properly_encoded(address: str, v1: bool) -> None:
    assert refusal(lambda: source(address, v1)) == f"bad_address '{address}'"


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize("address", [None, b"/queues/q", 7])
def test_s195_a_source_that_is_no_string(address: object, v1: bool) -> None:
    assert refusal(lambda: source(address, v1)) == "bad_address undefined"


def test_s196_an_exchange_is_no_source_of_version_2() -> None:
    address = "/exchanges/x/key"
    assert refusal(lambda: source(address, v1=False)) == f"amqp_address_v1_not_permitted '{address}'"
    assert refusal(lambda: source(address, v1=True)) == f"unknown_destination '{address}'"


@pytest.mark.parametrize("aim", [target, source])
@pytest.mark.parametrize("address", ["foo", "/queue/q", "/exchange/x/k", "", "/", "queues/q", "/topic/k"])
def test_s197_what_is_not_version_2_needs_permission(
    aim: Callable[[object, bool], object], address: str
) -> None:
    assert refusal(lambda: aim(address, False)) == f"amqp_address_v1_not_permitted '{address}'"


@pytest.mark.parametrize("address", ["/exchanges", "/queues"])
def test_x065_a_prefix_without_its_slash_is_not_version_2(address: str) -> None:
    assert refusal(lambda: target(address, v1=False)) == f"amqp_address_v1_not_permitted '{address}'"
    assert refusal(lambda: target(address, v1=True)) == f"unknown_destination '{address}'"
    assert refusal(lambda: source(address, v1=True)) == f"unknown_destination '{address}'"


@pytest.mark.parametrize("prefix", ["/queues/", "/exchanges/", "/exchanges/x/"])
def test_a_name_or_key_has_at_most_255_octets(prefix: str) -> None:
    """Other protocols have no place for more."""
    assert target(prefix + "%C3%A4" * 127 + "a", v1=False)
    for long in ("%C3%A4" * 128, "a" * 256, "a" * 100_000):
        assert "bad_address_string" in refusal(lambda long=long: target(prefix + long, v1=False))  # type: ignore[misc]


def test_a_refusal_is_short_whatever_the_address() -> None:
    assert len(refusal(lambda: target("/queues/" + "✋" * 100_000, v1=False))) < 300
    assert len(refusal(lambda: target("/" + "✋" * 100_000, v1=True))) < 300


def test_s191_s196_who_asks_for_a_subscription_may_name_an_exchange() -> None:
    for v1 in (False, True):
        assert subscription("/exchanges/x/a%2Fb", v1) == SourceAddress(exchange="x", key="a/b")
        assert subscription("/exchanges/x", v1) == SourceAddress(exchange="x")
        assert subscription("/queues/q", v1) == SourceAddress("q")
        for bad in ("/exchanges/", "/exchanges/amq.default/q", "/exchanges/x/%", "/exchanges/x/y/z"):
            assert refusal(lambda bad=bad: subscription(bad, v1)) == f"bad_address '{bad}'"  # type: ignore[misc] # noqa: B023
    assert subscription("/topic/k", v1=True) == SourceAddress(exchange="amq.topic", key="k")
    assert "not_permitted" in refusal(lambda: subscription("/topic/k", v1=False))


# What a message names.


@pytest.mark.parametrize("address", [*BAD_V2, "", "q", "/queue/q", "/topic/k", "/amq/queue/q", "/queues"])
def test_s200_s202_a_bad_to(address: str) -> None:
    """Also where version 1 is permitted."""
    with pytest.raises(AmqpError) as caught:
        to(address)
    assert caught.value.condition == "amqp:precondition-failed"
    assert caught.value.description == f"bad 'to' address string: {address}"


def test_s210_a_reply_to_names_a_queue() -> None:
    assert queue_named("/queues/a%2Fb") == "a/b"
    for address in ("q", "/queues/", "/queues/a/b", "/exchanges/x/q", "", "/queues/%"):
        assert queue_named(address) is None


# Version 1.


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("/exchange/x/rk", TargetAddress("x", "rk")),
        ("/exchange/x", TargetAddress("x", by_subject=True)),
        ("/exchange/x/", TargetAddress("x", by_subject=True)),
        ("/topic/a.b", TargetAddress("amq.topic", "a.b")),
        ("/amq/queue/q", TargetAddress("", "q", queue="q")),
        ("/queue/q", TargetAddress("", "q", queue="q", declares=True)),
        ("q", TargetAddress("", "q", queue="q", declares=True)),
        ("/queue", TargetAddress("", by_subject=True)),
        ("/queue/queues", TargetAddress("", "queues", queue="queues", declares=True)),
        ("exchange", TargetAddress("", "exchange", queue="exchange", declares=True)),
        ("/reply-queue/amq.gen/x", TargetAddress("", "amq.gen/x", queue="amq.gen/x")),
        ("/temp-queue/t", TargetAddress("", "t", queue="t")),
        ("/exchange/a%2Fb/c%2Fd", TargetAddress("a/b", "c/d")),
        ("a%2Fb", TargetAddress("", "a/b", queue="a/b", declares=True)),
        ("/queue/%2f%20+ä", TargetAddress("", "%2f%20+ä", queue="%2f%20+ä", declares=True)),
    ],
)
def test_s213_s214_s215_s216_s217_s222_s225_x064_targets_of_version_1(
    address: str, meant: TargetAddress
) -> None:
    assert target(address, v1=True) == meant


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("/exchange/x/bk", SourceAddress(exchange="x", key="bk")),
        ("/exchange/x", SourceAddress(exchange="x")),
        ("/topic/a.#", SourceAddress(exchange="amq.topic", key="a.#")),
        ("/amq/queue/q", SourceAddress("q")),
        ("/queue/q", SourceAddress("q", declares=True)),
        ("q", SourceAddress("q", declares=True)),
        ("/reply-queue/a/b", SourceAddress("a/b")),
        ("/temp-queue/t", SourceAddress("t", declares=True, temporary=True)),
        ("/topic/a%2Fb%20", SourceAddress(exchange="amq.topic", key="a/b%20")),
    ],
)
def test_s219_s220_s221_s222_x064_sources_of_version_1(address: str, meant: SourceAddress) -> None:
    assert source(address, v1=True) == meant


@pytest.mark.parametrize("aim", [target, source])
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/qqq/x", "unknown_destination '/qqq/x'"),
        ("/", "unknown_destination '/'"),
        ("", "unknown_destination ''"),
        ("a/b", "unknown_destination 'a/b'"),
        ("queue/q", "unknown_destination 'queue/q'"),
        ("/amq/x", "unknown_destination '/amq/x'"),
        ("/exchange/", "invalid_destination exchange '/'"),
        ("/exchange//key", "invalid_destination exchange '//key'"),
        ("/exchange", "invalid_destination exchange ''"),
        ("/exchange/x/k/more", "invalid_destination exchange '/x/k/more'"),
        ("/topic", "invalid_destination topic ''"),
        ("/topic/", "invalid_destination topic '/'"),
        ("/topic/a/b", "invalid_destination topic '/a/b'"),
        ("/queue/", "invalid_destination queue '/'"),
        ("/queue/a/b", "invalid_destination queue '/a/b'"),
        ("/amq/queue", "invalid_destination amq/queue ''"),
        ("/amq/queue/", "invalid_destination amq/queue '/'"),
        ("/temp-queue/", "invalid_destination temp-queue '/'"),
        ("/reply-queue", "invalid_destination reply-queue '/'"),
        ("/queue/a\nb", "invalid_destination queue '/a\nb'"),
        ("a" * 256, f"invalid_destination queue '/{'a' * 254}'"),
    ],
)
def test_s223_what_version_1_does_not_know(
    aim: Callable[[object, bool], object], address: str, words: str
) -> None:
    assert refusal(lambda: aim(address, True)) == words


def test_s217_s223_the_queue_without_a_name_is_a_target_only() -> None:
    assert refusal(lambda: source("/queue", v1=True)) == "invalid_destination queue ''"


def test_s223_a_target_that_is_no_string() -> None:
    assert refusal(lambda: target(b"q", v1=True)) == "unknown_destination undefined"


# What we write.


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("q", "/queues/q"),
        ("a/b", "/queues/a%2Fb"),
        ("a b+ä", "/queues/a%20b%2B%C3%A4"),
        ("\udcff", "/queues/%FF"),
    ],
)
def test_s210_addresses_that_we_make_are_encoded(name: str, address: str) -> None:
    assert queue_address(name) == address
    assert queue_named(address) == name


@given(NAMES)
def test_s187_any_queue_has_an_address(name: str) -> None:
    assume(len(name.encode()) <= addresses.NAME_SIZE_MAX)
    assert target(queue_address(name), v1=False) == TargetAddress("", name, queue=name)
    assert source(queue_address(name), v1=False) == SourceAddress(name)
    assert queue_named(queue_address(name)) == name


@given(NAMES, KEYS)
def test_s187_any_exchange_and_key_have_an_address(name: str, key: str) -> None:
    assume(name != "amq.default" and len(name.encode()) <= 255 and len(key.encode()) <= 255)
    assert target(exchange_address(name, key), v1=False) == TargetAddress(name, key)


@given(st.binary(min_size=1, max_size=255))
def test_names_that_are_no_text_have_one_too(octets: bytes) -> None:
    """0-9-1 lets a name be any octets."""
    name = octets.decode("utf-8", "surrogateescape")
    assert queue_named(queue_address(name)) == name


@given(st.text(alphabet="/%2F exchangquso.é", max_size=30), st.booleans())
def test_any_text_is_understood_or_refused(address: str, v1: bool) -> None:
    for aim in (target, source):
        try:
            found: object = aim(address, v1)
        except AmqpError as error:
            found = error.condition
        assert found == "amqp:invalid-field" or isinstance(found, TargetAddress | SourceAddress)
