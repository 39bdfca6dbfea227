"""Tokens in place of passwords, in every protocol: who comes in, what he may do there, renewing, and the end."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.client import Client
from leveret.front_end import Peer as Address
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp10.codec import performatives as p
from leveret.security.users import Permission
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import Peer, start_ok
from tests.amqp10.parts import told
from tests.amqp10.peer import Peer as Peer10
from tests.amqp10.test_s14_management import Pair
from tests.harness.bench import ClientBench
from tests.harness.http import Line, Response
from tests.harness.peer import ELSEWHERE, LOOPBACK

from .issuer import LASTS_S, WALL, settings, token, write_keys

LEEWAY_S = 5
HOSTS = "[protocols.amqp10]\nidle_timeout_s = 0\n" + "".join(
    f'[[virtual_hosts]]\nname = "{name}"\n' for name in ("/", "blue")
)


@pytest.fixture
def bench(tmp_path: Path) -> ClientBench:
    return ClientBench(HOSTS + settings(write_keys(tmp_path)))


def in_091(bench: ClientBench, given: str, name: str = "", address: Address = ELSEWHERE) -> Client | None:
    peer = Peer(bench, address)
    return peer.front.client if isinstance(peer.log_in(name, given), m.ConnectionTune) else None


def in_091_as_table(
    bench: ClientBench, given: str, name: str = "", address: Address = ELSEWHERE
) -> Client | None:
    peer = Peer(bench, address)
    peer.start()
    fields = ((b"LOGIN", name.encode()), (b"PASSWORD", given.encode()))
    table = b"".join(
        bytes((len(key),)) + key + b"S" + len(text).to_bytes(4, "big") + text for key, text in fields
    )
    peer.send(0, start_ok("AMQPLAIN", table))
    return peer.front.client if isinstance(peer.next(0), m.ConnectionTune) else None


def in_10(bench: ClientBench, given: str, name: str = "", address: Address = ELSEWHERE) -> Client | None:
    peer = Peer10(bench, address)
    peer.greet()
    outcome = peer.authenticate("PLAIN", b"\0%b\0%b" % (name.encode(), given.encode()))
    return peer.front.client if outcome == p.SaslOutcome(code=p.SASL_CODE_OK) else None


def in_010(bench: ClientBench, given: str, name: str = "", address: Address = ELSEWHERE) -> Client | None:
    peer = Peer010(bench, address)
    peer.greet()
    response = b"\0%b\0%b" % (name.encode(), given.encode())
    peer.control(c.ConnectionStartOk(mechanism="PLAIN", response=response))
    peer.read()
    return None if peer.tune is None else peer.front.client


WAYS = [in_091, in_091_as_table, in_10, in_010]
Way = Callable[..., Client | None]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["", "shop", "whoever"])
def test_a_token_is_a_password_and_says_itself_whose(bench: ClientBench, way: Way, name: str):
    client = way(bench, token(), name)
    assert client is not None
    assert client.user.name == "shop"


@pytest.mark.parametrize("way", WAYS)
def test_a_token_of_three_kilobytes_fits_into_the_first_frames(bench: ClientBench, way: Way):
    given = token(groups=["x" * 50] * 40)
    assert 3000 < len(given) < 4096
    assert way(bench, given) is not None


WRONG = {
    "expired": lambda: token(exp=WALL - 60),
    "not yet good": lambda: token(nbf=WALL + 60),
    "for others": lambda: token(aud="other"),
    "unsigned": lambda: token().rpartition(".")[0] + ".",
    "of another key": lambda: token("PS256", {"kid": "RS256"}),
    "huge": lambda: token(more="x" * 7500),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_token_is_a_wrong_password(bench: ClientBench, way: Way, wrong: str):
    assert way(bench, WRONG[wrong](), "guest", LOOPBACK) is None


@pytest.mark.parametrize("way", WAYS)
def test_without_keys_a_token_is_just_a_wrong_password(way: Way):
    assert way(ClientBench(), token(), "shop") is None


def test_passwords_go_on_being_good(bench: ClientBench):
    assert in_091(bench, "guest", "guest", LOOPBACK) is not None


def test_a_token_of_guest_does_not_come_from_elsewhere(bench: ClientBench):
    given = token(sub="guest")
    assert in_10(bench, given, "", ELSEWHERE) is None
    assert in_10(bench, given, "", LOOPBACK) is not None


def test_tokens_that_are_not_good_keep_nobody_out(bench: ClientBench):
    for _ in range(50):
        assert in_091(bench, token(exp=WALL - 60), "shop") is None
    assert in_091(bench, token(), "shop") is not None


# What he may do.


def test_scopes_decide_where_he_enters(bench: ClientBench):
    given = token(scope="leveret.read:blue/*")
    peer = Peer(bench, ELSEWHERE)
    peer.log_in("", given)
    peer.tune()
    assert peer.closed_with(0, m.ConnectionOpen("/")).startswith(
        "530 NOT_ALLOWED - access to vhost '/' refused"
    )
    assert Peer(bench, ELSEWHERE).open("", given, "blue").front.client.host.name == "blue"
    refused = Peer10(bench, ELSEWHERE).log_in("", given).ask_open("vhost:/")
    assert (refused.opened, refused.front.closed) == (None, True)
    other = Peer010(bench, ELSEWHERE)
    other.greet()
    other.control(c.ConnectionStartOk(mechanism="PLAIN", response=b"\0\0" + given.encode()))
    other.control(c.ConnectionTuneOk(max_frame_size=65535))
    other.control(c.ConnectionOpen(virtual_host="/"))
    other.read()
    assert other.closed is not None


def test_scopes_decide_what_he_does_there_and_permissions_of_his_name_do_not(bench: ClientBench):
    bench.user("shop")  # who may do everything, with a password
    given = token(scope="leveret.configure:*/mine.* leveret.read:*/mine.*")
    channel = Peer(bench, ELSEWHERE).open("", given).channel()
    assert isinstance(channel.call(m.QueueDeclare("mine.q")), m.QueueDeclareOk)
    refusal = channel.call(m.QueueDeclare("theirs"))
    assert isinstance(refusal, m.ChannelClose)
    assert refusal.reply_text == (
        "ACCESS_REFUSED - configure access to queue 'theirs' in vhost '/' refused for user 'shop'"
    )


def test_scopes_decide_about_routing_keys(bench: ClientBench):
    given = token(scope="leveret.write:*/amq.topic/eu.* leveret.read:*/*")
    channel = Peer(bench, ELSEWHERE).open("", given).channel()
    channel.publish("amq.topic", "eu.fr", b"fine")
    assert channel.next() is None
    channel.publish("amq.topic", "us.ny", b"not")
    refusal = channel.next()
    assert isinstance(refusal, m.ChannelClose)
    assert refusal.reply_text.startswith("ACCESS_REFUSED - write access to topic 'us.ny'")


def test_two_tokens_of_one_user_are_two_sets_of_scopes(bench: ClientBench):
    access = bench.broker.access
    one, other = in_091(bench, token()), in_091(bench, token(scope=""))
    assert one is not None
    assert other is not None
    assert access.allowed(one.user, "/", Permission.READ, "q")
    assert not access.allowed(other.user, "/", Permission.READ, "q")
    assert access.allowed(one.user, "/", Permission.READ, "q")


def test_what_one_token_may_publish_another_of_that_user_may_not(bench: ClientBench):
    """The answers that are remembered for a user's channels belong to the scopes, not to the name."""
    writes = Peer(bench, ELSEWHERE).open("", token()).channel()
    writes.declare("q")
    writes.publish("", "q", b"1")
    assert writes.next() is None
    reads = Peer(bench, ELSEWHERE).open("", token(scope="leveret.read:*/*")).channel()
    reads.publish("", "q", b"2")
    refusal = reads.next()
    assert isinstance(refusal, m.ChannelClose)
    assert refusal.reply_text.startswith("ACCESS_REFUSED - write access to exchange 'amq.default'")
    writes.publish("", "q", b"3")
    bench.settle()
    assert bench.queue("q").ready == 2


def test_to_send_as_others_takes_the_tag_in_the_token(bench: ClientBench):
    bench.broker.access.add_user("shop", "shop", ("impersonator",))
    access = bench.broker.access
    plain, tagged = in_091(bench, token()), in_091(bench, token(scope="leveret.tag:impersonator"))
    assert plain is not None
    assert tagged is not None
    with pytest.raises(Exception, match="user_id property set to 'ann'"):
        access.check_user_id(plain.user, "ann")
    access.check_user_id(tagged.user, "ann")


# Renewing, and the end.


def test_a_connection_ends_when_its_token_does(bench: ClientBench):
    peer, other, third = opened(bench)
    bench.advance(LASTS_S + LEEWAY_S - 1)
    for each in (peer, other, third):
        each.read()
    assert peer.next(0) is None
    assert other.closed is None
    assert third.closed is None
    bench.advance(1)
    assert peer.refusal() == "320 CONNECTION_FORCED - credential expired"
    other.read()
    assert told(other.closed.error) == "amqp:unauthorized-access credential expired"
    third.read()
    assert third.closed is not None
    assert (third.closed.reply_code, third.closed.reply_text) == (320, "credential expired")
    assert not bench.broker.clients


def opened(bench: ClientBench) -> tuple[Peer, Peer10, Peer010]:
    return (
        Peer(bench, ELSEWHERE).open("", token()),
        Peer10(bench, ELSEWHERE).open("", token()),
        Peer010(bench, ELSEWHERE).open("", token()),
    )


def test_whoever_logs_in_with_a_password_stays(bench: ClientBench):
    peer = Peer(bench).open()
    bench.advance(LASTS_S + LEEWAY_S + 1)
    assert peer.next(0) is None
    assert bench.broker.clients


def test_a_fresh_token_keeps_a_connection_open_in_0_9_1(bench: ClientBench):
    peer = Peer(bench, ELSEWHERE).open("", token())
    bench.advance(LASTS_S)
    assert isinstance(peer.call(0, renewed(token(exp=WALL + 2 * LASTS_S))), m.ConnectionUpdateSecretOk)
    bench.advance(LASTS_S + LEEWAY_S - 1)
    assert peer.next(0) is None
    bench.advance(1)
    assert peer.refusal() == "320 CONNECTION_FORCED - credential expired"


def test_a_fresh_token_keeps_a_connection_open_in_1_0(bench: ClientBench):
    peer = Peer10(bench, ELSEWHERE).open("", token())
    asking = Pair(peer.begin())
    bench.advance(LASTS_S)
    assert asking.ask("PUT", "/auth/tokens", token(exp=WALL + 2 * LASTS_S).encode()) == (204, None)
    bench.advance(LASTS_S + LEEWAY_S - 1)
    peer.read()
    assert peer.closed is None
    bench.advance(1)
    peer.read()
    assert peer.closed is not None


def test_a_fresh_token_that_is_not_good_ends_the_connection(bench: ClientBench):
    peer = Peer(bench, ELSEWHERE).open("", token())
    assert peer.closed_with(0, renewed(token(aud="other"))).startswith("530 NOT_ALLOWED")
    other = Peer10(bench, ELSEWHERE).open("", token())
    Pair(other.begin()).send("PUT", "/auth/tokens", token(aud="other").encode())
    other.read()
    assert told(other.closed.error).startswith("amqp:unauthorized-access ")


def test_a_fresh_token_is_one_of_the_same_user(bench: ClientBench):
    peer = Peer(bench, ELSEWHERE).open("", token())
    assert peer.closed_with(0, renewed(token(sub="admin"))).startswith("530 NOT_ALLOWED")
    assert not bench.broker.connections_of
    other = Peer10(bench, ELSEWHERE).open("", token())
    Pair(other.begin()).send("PUT", "/auth/tokens", token(sub="admin").encode())
    other.read()
    assert told(other.closed.error).startswith("amqp:unauthorized-access ")


def test_a_fresh_token_with_fewer_scopes_takes_effect_at_once(bench: ClientBench):
    """Also where the answer for the next message is remembered, and for consumers that are there."""
    peer = Peer(bench, ELSEWHERE).open("", token())
    channel = peer.channel()
    channel.declare("q")
    channel.consume("q")
    channel.publish("", "q", b"1")
    assert len(channel.deliveries()) == 1
    peer.call(0, renewed(token(scope="leveret.configure:*/*")))
    bench.settle()
    assert not bench.queue("q").consumers
    channel.publish("", "q", b"2")
    refusals = [each for each in channel.all() if isinstance(each, m.ChannelClose)]
    assert refusals[0].reply_text.startswith("ACCESS_REFUSED - write access to exchange 'amq.default'")


def renewed(given: str) -> m.ConnectionUpdateSecret:
    return m.ConnectionUpdateSecret(given.encode(), "it was time")


# Over HTTP.


def ask(
    bench: ClientBench, authorization: str, target: str = "/api/leveret/status", method: str = "GET"
) -> Response:
    address = Address("192.0.2.7", 40000, "192.0.2.1", 15672, False)
    bench.broker.tick()
    line = Line(bench.broker, bench.config, address)
    line.send(method, target, headers={"Host": "broker.example", "Authorization": authorization})
    bench.settle()
    return line.response


MANAGER = "leveret.tag:management leveret.read:*/*"


def test_over_http_a_token_stands_alone_or_as_password(bench: ClientBench):
    given = token(scope=MANAGER)
    assert ask(bench, f"Bearer {given}", "/api/whoami").content["name"] == "shop"
    assert ask(bench, f"bearer {given}", "/api/whoami").content["tags"] == ["management"]
    basic = base64.b64encode(f"whoever:{given}".encode()).decode()
    assert ask(bench, f"Basic {basic}", "/api/whoami").content["name"] == "shop"


def test_over_http_tags_come_from_the_token(bench: ClientBench):
    bench.broker.access.add_user("shop", "shop", ("administrator",))
    assert ask(bench, f"Bearer {token()}", "/api/whoami").status in (401, 403)


def test_what_a_token_makes_is_not_opened_to_a_user_of_that_name(bench: ClientBench):
    bench.user("shop")
    made = token(scope="leveret.tag:administrator")
    assert ask(bench, f"Bearer {made}", "/api/vhosts/made", "PUT").status == 201
    shop = bench.broker.access.user("shop")
    assert shop is not None
    assert not bench.broker.access.may_enter(shop, "made")


@pytest.mark.parametrize("wrong", [*WRONG, "none at all", "password"])
def test_over_http_a_wrong_token_is_not_let_in(bench: ClientBench, wrong: str):
    others = {"none at all": "", "password": "guest"}
    given = others[wrong] if wrong in others else WRONG[wrong]()
    assert ask(bench, f"Bearer {given}", "/api/whoami").status in (401, 431)


def test_no_log_ever_has_a_token(bench: ClientBench, caplog: pytest.LogCaptureFixture):
    good, bad = token(), token(aud="other")
    with caplog.at_level(logging.DEBUG):
        for given in (good, bad):
            for way in WAYS:
                way(bench, given, "shop")
            ask(bench, f"Bearer {given}")
    assert caplog.records
    for given in (good, bad):
        assert not any(part in caplog.text for part in given.split("."))


# Sessions of 0-10 that outlive their connections.


@pytest.mark.parametrize(("scope", "goes_on"), [("leveret.read:*/q", True), ("leveret.read:*/other", False)])
def test_a_session_goes_on_with_another_token_only_if_that_may_read_the_same(
    bench: ClientBench, scope: str, goes_on: bool
):
    first = Peer010(bench, ELSEWHERE).open("", token())
    session = first.attach("session")
    session.control(c.SessionRequestTimeout(60))
    session.declare("q")
    session.subscribe("q", "here")
    first.drop()
    queue = bench.queue("q")
    assert len(queue.consumers) == 1
    Peer010(bench, ELSEWHERE).open("", token(scope=scope)).attach("session")
    assert bool(queue.consumers) is goes_on
