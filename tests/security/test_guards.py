"""Who may connect and try to log in, and how soon again. Time is passed in."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.config.config import parse
from leveret.config.sections import LimitsSettings
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp10.codec import performatives as p
from leveret.security import guards
from leveret.security.guards import KEYS_MAX, REFUSED_MAX_S, TRIES, Admission, Logins, network
from leveret.security.sasl import AuthenticationFailed, Plain, Success
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import Peer
from tests.amqp10.peer import Peer as Peer10
from tests.amqp10.peer import plain
from tests.harness.bench import ClientBench
from tests.harness.http import Line
from tests.harness.peer import ELSEWHERE, LOOPBACK
from tests.harness.threads import slow_access

HERE, THERE, NEXT_DOOR = "192.0.2.7", "198.51.100.1", "192.0.2.8"


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002"),
        ("2001:db8:1:2::9", "2001:0db8:0001:0002"),
        ("2001:db8:1:3::9", "2001:0db8:0001:0003"),
        ("fe80::1%eth0", "fe80:0000:0000:0000"),
        ("somewhere", "somewhere"),
    ],
)
def test_an_address_of_ipv6_is_counted_by_its_first_half(host: str, key: str):
    assert network(host) == key


# Descriptors.


def test_a_part_of_the_descriptors_is_kept_from_connections():
    door: Admission[int] = Admission(descriptors=256)
    assert door.refusal_of(191) == ""
    assert door.refusal_of(192) == "only 64 of 256 file descriptors (ulimit -n) are left for the data"
    many: Admission[int] = Admission(descriptors=1_000_000)
    assert (many.refusal_of(999_743), many.refusal_of(999_744) != "") == ("", True)
    assert Admission().refusal_of(1 << 30) == ""


def test_strangers_take_at_most_half_of_the_descriptors():
    door: Admission[int] = Admission(descriptors=8)
    assert [door.enter(number, limits(strangers_max=None)) for number in range(5)] == [None] * 4 + [0]
    assert [Admission(descriptors=8).enter(1, limits(strangers_max=1)) for _ in range(2)] == [None, None]
    few: Admission[int] = Admission(descriptors=8)
    assert [few.enter(number, limits(strangers_max=1)) for number in range(2)] == [None, 0]


# Connections in a second.


def limits(**settings: int | None) -> LimitsSettings:
    return LimitsSettings(**settings)


def test_more_connections_than_in_two_seconds_are_refused_until_time_has_passed():
    door: Admission[int] = Admission()
    asked = limits(connection_rate=10)
    assert [door.refusal(asked, 0.0) for _ in range(21)].count("") == 20
    assert door.refusal(asked, 0.05) == "more than 10 connections in a second"
    assert door.refusal(asked, 0.16) == ""
    assert door.refusal(asked, 0.16) != ""
    assert [door.refusal(asked, 1000.0) for _ in range(30)].count("") == 20, "it does not save up for more"


def test_one_address_does_not_use_up_what_others_have():
    door: Admission[int] = Admission()
    asked = limits(connection_rate_per_address=5)
    assert [door.refusal_from(HERE, False, asked, 0.0) for _ in range(11)].count("") == 10
    assert door.refusal_from(NEXT_DOOR, False, asked, 0.0) == ""
    assert [door.refusal_from(HERE, True, asked, 0.0) for _ in range(50)].count("") == 50, "this machine"


def test_a_whole_network_of_ipv6_is_one():
    door: Admission[int] = Admission()
    asked = limits(connection_rate_per_address=5)
    taken = [door.refusal_from(f"2001:db8::{n:x}", False, asked, 0.0) for n in range(100)]
    assert taken.count("") == 10


def test_no_limit_is_none():
    door: Admission[int] = Admission()
    asked = limits(connection_rate=None, connection_rate_per_address=None, strangers_per_address_max=None)
    assert not any(
        door.refusal(asked, 0.0) or door.refusal_from(HERE, False, asked, 0.0) for _ in range(5000)
    )


def test_what_is_remembered_of_addresses_is_bounded():
    door: Admission[int] = Admission()
    asked = limits(connection_rate_per_address=1)
    for n in range(KEYS_MAX + 10):
        door.refusal_from(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", False, asked, 0.0)
    assert len(door._rates._by_network) == KEYS_MAX


# Strangers.


def test_one_stranger_too_many_ends_the_oldest():
    door: Admission[str] = Admission()
    asked = limits(strangers_max=2)
    assert door.enter("a", asked) is None
    assert door.enter("b", asked) is None
    assert door.enter("c", asked) == "a"
    door.strangers.leave("a")
    door.strangers.leave("b")  # has logged in
    assert door.enter("d", asked) is None


def test_one_stranger_too_many_from_an_address_is_refused():
    door: Admission[str] = Admission()
    asked = limits(strangers_per_address_max=2)
    for who in "ab":
        assert door.refusal_from(HERE, False, asked, 0.0) == ""
        door.enter(who, asked)
        door.came_from(who, HERE, False)
    assert door.refusal_from(HERE, False, asked, 0.0) == f"2 connections from {HERE} have not logged in"
    assert door.refusal_from(NEXT_DOOR, False, asked, 0.0) == ""
    assert door.refusal_from(HERE, True, asked, 0.0) == ""
    door.strangers.leave("a")
    assert door.refusal_from(HERE, False, asked, 0.0) == ""
    door.strangers.leave("b")
    door.strangers.leave("b")
    assert len(door.strangers) == 0
    assert not door.strangers._held, "nothing is left of who has gone"


def test_a_flood_of_refusals_is_a_line_every_ten_seconds():
    door: Admission[str] = Admission()
    told = [door.refuse("too many", 0.01 * n) for n in range(1001)]
    assert [line for line in told if line] == ["too many", "too many (and 999 others since the last time)"]
    assert door.refused == 1001


def test_what_strangers_say_wrong_is_a_line_every_ten_seconds_of_its_own():
    door: Admission[str] = Admission()
    assert door.refuse("too many", 0.0) == door.lines.line("too many", 0.0) == "too many"
    assert [door.lines.line("no TLS", 0.1 * n) for n in range(1, 100)] == [""] * 99
    assert door.lines.line("no TLS", 10.0) == "no TLS (and 99 others since the last time)"


# Failed logins.


def logins(per_address: int | None = 3, per_user: int | None = 3) -> Logins:
    made = Logins()
    made.per_address, made.per_user = per_address, per_user
    return made


def fail(made: Logins, name: str, host: str, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        made.failed(name, host, False, now)


def test_the_first_failures_are_free_and_then_the_wait_doubles():
    made = logins()
    fail(made, "ann", HERE, 3)
    assert made.refused_s("ann", HERE, False, 0.0) == 0
    waits = []
    for _ in range(8):
        fail(made, "ann", HERE, 1)
        waits.append(made.refused_s("ann", HERE, False, 0.0))
    assert waits == [1, 2, 4, 8, 16, REFUSED_MAX_S, REFUSED_MAX_S, REFUSED_MAX_S]
    assert made.refused_s("ann", HERE, False, REFUSED_MAX_S) == 0, "never longer than half a minute"


def test_an_address_that_guesses_is_refused_for_every_name():
    made = logins(per_user=None)
    for name in ("ann", "bob", "cid", "dan"):
        fail(made, name, HERE, 1)
    assert made.refused_s("eve", HERE, False, 0.0) == 1
    assert made.refused_s("eve", NEXT_DOOR, False, 0.0) == 0
    assert made.refused_s("eve", HERE, True, 0.0) == 0, "everybody on this machine may share its address"


def test_a_name_that_is_guessed_is_refused_from_every_address_but_its_user_s_own():
    made = logins(per_address=None)
    made.succeeded("ann", HERE)
    for n in range(20):
        fail(made, "ann", f"198.51.100.{n}", 1)
    assert made.refused_s("ann", THERE, False, 0.0) == REFUSED_MAX_S
    assert made.refused_s("ann", HERE, False, 0.0) == 0
    assert made.refused_s("bob", THERE, False, 0.0) == 0


@pytest.mark.parametrize("loopback", [False, True])
def test_one_address_does_not_have_a_name_wait_elsewhere(loopback: bool):
    made = logins()
    now = 0.0
    for _ in range(200):
        made.failed("ann", HERE, loopback, now)
        assert made.refused_s("ann", THERE, False, now) == 0
        now += made.refused_s("ann", HERE, loopback, now) or 0.25
    assert made.refused_s("ann", HERE, loopback, now - 1) == (0 if loopback else 1)


def test_a_name_that_several_networks_guess_is_refused_though_each_is_patient():
    made = logins(per_address=20, per_user=20)
    for n in range(5):
        fail(made, "ann", f"198.51.100.{n}", 5)
    assert made.refused_s("ann", THERE, False, 0.0) == 16


def test_an_address_that_guesses_does_not_shut_out_who_is_known_there():
    made = logins()
    made.succeeded("ann", HERE)
    for n in range(20):
        fail(made, f"nobody{n}", HERE, 1)
    assert made.refused_s("bob", HERE, False, 0.0) == REFUSED_MAX_S
    assert made.refused_s("ann", HERE, False, 0.0) == 0


def test_who_is_known_there_cannot_be_guessed_for_ever_either():
    made = logins()
    made.succeeded("ann", HERE)
    fail(made, "ann", HERE, 20)
    tried = sum(made.refused_s("ann", HERE, False, 0.01 * n) == 0 for n in range(1000))
    assert tried == pytest.approx(12 * TRIES, abs=1), "ten seconds of tries, and two in the bucket"
    assert made.refused_s("ann", HERE, False, 9.99) > 20
    assert made.refused_s("ann", THERE, False, 9.99) == 0, "which concerns nobody elsewhere"


@given(
    st.lists(st.tuples(st.floats(0.2, 2), st.booleans()), min_size=10, max_size=60),
    st.booleans(),
    st.booleans(),
)
def test_a_patient_guesser_never_has_the_right_password_refused_at_home(
    steps: list[tuple[float, bool]], loopback: bool, holder_first: bool
):
    """Whatever the guesser does at five tries a second, and whenever the user comes."""
    made = logins(20, 20)
    if holder_first or not loopback:
        made.succeeded("ann", HERE)
    for _ in range(60):
        made.failed("ann", HERE, loopback, 0.0)
    now = 0.0
    for seconds, right in steps:
        now += seconds
        assert made.refused_s("ann", HERE, loopback, now) == 0
        if right:
            made.succeeded("ann", HERE)
        else:
            made.failed("ann", HERE, loopback, now)


def test_failures_are_forgotten_after_five_minutes():
    made = logins()
    fail(made, "ann", HERE, 10)
    fail(made, "ann", HERE, 1, now=guards.FORGOTTEN_S + 1)
    assert made.refused_s("ann", HERE, False, guards.FORGOTTEN_S + 1) == 0


def test_what_is_remembered_of_names_and_addresses_is_bounded():
    made = logins()
    for n in range(KEYS_MAX + 10):
        made.failed(f"nobody{n}", f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", False, 0.0)
        made.succeeded(f"user{n}", HERE)
        made.failed(f"nobody{n}", HERE, True, 0.0)
        made.refused_s(f"nobody{n}", HERE, True, 0.0)
    assert len(made._names._failed) == len(made._networks._failed) == len(made._known) == KEYS_MAX
    assert len(made._tries) <= KEYS_MAX


# In the protocols.

FEW = "[limits]\nlogin_failures_per_user = 2\nlogin_failures_per_address = 100\n"


def login_091(bench: ClientBench, name: str, password: str, address=LOOPBACK) -> bool:
    return isinstance(Peer(bench, address).log_in(name, password), m.ConnectionTune)


def login_10(bench: ClientBench, name: str, password: str, address=LOOPBACK) -> bool:
    peer = Peer10(bench, address)
    peer.greet()
    return peer.authenticate("PLAIN", plain(name, password)) == p.SaslOutcome(code=p.SASL_CODE_OK)


def login_010(bench: ClientBench, name: str, password: str, address=LOOPBACK) -> bool:
    peer = Peer010(bench, address)
    peer.greet()
    response = b"\0" + name.encode() + b"\0" + password.encode()
    peer.control(c.ConnectionStartOk(mechanism="PLAIN", response=response))
    peer.read()
    return peer.tune is not None


def login_http(bench: ClientBench, name: str, password: str, address=LOOPBACK) -> bool:
    bench.broker.tick()
    line = Line(bench.broker, bench.config, address)
    return line.send("GET", "/api/whoami", login=f"{name}:{password}").response.status == 200


LOGINS = [login_091, login_10, login_010, login_http]


@pytest.mark.parametrize("login", LOGINS)
def test_after_too_many_failures_even_the_right_password_waits(login):
    bench = ClientBench(FEW)
    bench.user("ann", tags=("management",))
    for _ in range(3):
        assert not login(bench, "ann", "wrong", ELSEWHERE)
    assert not login(bench, "ann", "ann", ELSEWHERE)
    bench.clock.advance(1)
    assert login(bench, "ann", "ann", ELSEWHERE)
    assert bench.broker.access.logins.refused == 1


@pytest.mark.parametrize("login", LOGINS)
def test_somebody_who_guesses_on_the_same_machine_does_not_lock_out_who_knows_the_password(login):
    """Sixty wrong logins at once, then five a second."""
    bench = ClientBench("")
    bench.user("ann", tags=("management",))
    for _ in range(60):
        assert not login(bench, "ann", "wrong", LOOPBACK)
    for _ in range(20):
        bench.clock.advance(1)
        for _ in range(5):
            assert not login(bench, "ann", "wrong", LOOPBACK)
        assert login(bench, "ann", "ann", LOOPBACK)


@pytest.mark.parametrize("login", LOGINS)
def test_a_guesser_on_the_same_machine_is_slowed(login):
    bench = ClientBench(FEW)
    bench.user("ann", tags=("management",))
    for _ in range(60):
        login(bench, "ann", "wrong", LOOPBACK)
    assert bench.broker.access.logins.refused > 10


@pytest.mark.parametrize("login", LOGINS)
def test_failures_by_address_count_in_every_protocol(login):
    bench = ClientBench("[limits]\nlogin_failures_per_address = 2\n")
    bench.user("ann", tags=("management",))
    for n in range(3):
        assert not login(bench, f"nobody{n}", "wrong", ELSEWHERE)
    assert not login(bench, "ann", "ann", ELSEWHERE)
    assert login(bench, "ann", "ann", LOOPBACK)


def test_nobody_is_told_that_he_has_to_wait():
    """He reads what everybody reads whose password is wrong."""
    bench = ClientBench(FEW)
    said = []
    for _ in range(5):
        peer = Peer(bench, ELSEWHERE)
        peer.log_in("ann", "wrong")
        said.append(peer.front.wire.ended_because)
    assert len(set(said)) == 1


def test_by_default_a_developer_notices_nothing():
    settings = parse("").limits
    door: Admission[int] = Admission()
    for n in range(1000):
        assert door.refusal(settings, 0.001 * n) == door.refusal_from(HERE, False, settings, 0.001 * n) == ""
        assert door.enter(n, settings) is None
    made = logins(settings.login_failures_per_address, settings.login_failures_per_user)
    fail(made, "guest", HERE, 20)
    assert made.refused_s("guest", HERE, False, 0.0) == 0


def test_of_a_thousand_wrong_passwords_at_once_few_are_looked_at():
    """They all came in before the first of them had failed."""
    access, threads = slow_access(ann="secret", bob="secret")
    access.logins.per_user = 2
    attempts = [Plain(access, False) for _ in range(150)]
    pending = []
    for number, attempt in enumerate(attempts):
        attempt.host = HERE
        pending.append(attempt.login("ann", f"wrong{number}"))
    bob = Plain(access, False)
    bob.host = THERE
    his = bob.login("bob", "secret")
    for each in [*pending, his]:
        each.waiting.tell(partial(answered, each))
    assert threads.run() < 10
    assert isinstance(his.answer(), Success)


def answered(pending) -> None:
    """As a front-end asks for the answer."""
    with contextlib.suppress(AuthenticationFailed):
        pending.answer()
