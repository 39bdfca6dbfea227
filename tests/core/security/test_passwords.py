"""Passwords to what is kept of them, and back to yes or no: which hashes, at what cost, and who waits for them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import argon2
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import Broker
from leveret.config.config import parse
from leveret.errors import LimitReached
from leveret.security import password_checks
from leveret.security.access import Access
from leveret.security.password_checks import (
    JOBS_MAX,
    LINE_MAX,
    RUNNING_MAX,
    CheckOrigin,
    Job,
    Waiting,
    inline,
    mark_of,
)
from leveret.security.passwords import ARGON2ID, DIGESTS, SHA256, Cost, Hashing, PasswordHash, nobodys
from leveret.security.users import User
from leveret.server.node.assembly import populate
from tests.harness.passwords import authenticate_password
from tests.harness.threads import CHEAP, Threads, make_slow, slow_access

SALT = b"salt"
T = TypeVar("T")


def open_access() -> Access:
    access = Access(random_octets=lambda size: (SALT * size)[:size])
    access.add_user("u", "secret")
    return access


def user_of(access: Access, name: str = "u") -> User:
    user = access.user(name)
    assert user is not None
    return user


def test_a_password_is_kept_as_rabbitmq_keeps_it() -> None:
    kept = user_of(open_access()).password
    assert kept is not None
    assert kept.text == base64.b64encode(SALT + hashlib.sha256(SALT + b"secret").digest()).decode()


# A password and its hash from RabbitMQ's guide on passwords.
GUIDE = ("test12", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")


def test_a_hash_from_a_definition_file_is_accepted() -> None:
    password, text = GUIDE
    kept = PasswordHash.parse(text)
    assert kept.matches(password)
    assert not kept.matches("test13")
    assert kept.text == text


@given(st.text(), st.text(), st.binary(min_size=4, max_size=4), st.sampled_from(["256", "512"]))
def test_a_hash_matches_its_password_only_and_survives_a_definition_file(
    password: str, other: str, salt: bytes, size: str
) -> None:
    algorithm = f"rabbit_password_hashing_sha{size}"
    kept = PasswordHash.parse(PasswordHash.of(password, salt, algorithm).text, algorithm)
    assert kept.matches(password)
    assert kept.matches(other) == (other == password)


BAD_HASHES = [
    ("no base64!", "rabbit_password_hashing_sha256", "is not base64"),
    (base64.b64encode(bytes(20)).decode(), "rabbit_password_hashing_sha256", "has 20 bytes"),
    (GUIDE[1], "rabbit_password_hashing_sha512", "has 36 bytes, rabbit_password_hashing_sha512 needs 68"),
    (
        GUIDE[1],
        "rabbit_password_hashing_md5",
        "hashing algorithm 'rabbit_password_hashing_md5' is not one of",
    ),
]


@pytest.mark.parametrize(("text", "algorithm", "reason"), BAD_HASHES)
def test_a_hash_that_cannot_be_used_is_refused(text: str, algorithm: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as raised:
        PasswordHash.parse(text, algorithm)
    assert text not in str(raised.value)


def test_only_the_right_password_logs_in() -> None:
    access = open_access()
    assert authenticate_password(access, "u", "secret") is access.user("u")
    assert authenticate_password(access, "u", b"secret") is access.user("u")
    for name, password in (("u", "Secret"), ("u", ""), ("v", "secret"), ("", "")):
        assert authenticate_password(access, name, password) is None


@pytest.mark.parametrize("password", [None, "", b""])
def test_a_user_without_a_password_cannot_log_in_by_password(password: str | bytes | None) -> None:
    access = Access()
    access.add_user("u", password)
    for guess in ("", "None", b"\0"):
        assert authenticate_password(access, "u", guess) is None


def test_nothing_shows_a_secret() -> None:
    user = user_of(open_access())
    assert user.password is not None
    shown = repr(user) + str(user) + repr(user.password) + str(user.password) + repr(open_access())
    assert "secret" not in shown
    assert user.password.text not in shown
    assert repr(user.password.kept) not in shown


def test_salts_come_from_the_outside_and_differ() -> None:
    salts = iter([b"for the cache", b"for nobody", b"aaaa", b"bbbb"])
    access = Access(random_octets=lambda size: next(salts))
    one, other = access.add_user("a", "same").password, access.add_user("b", "same").password
    assert one is not None
    assert other is not None
    assert one.kept != other.kept


def test_a_hash_without_a_named_algorithm_is_taken_for_the_one_it_fits() -> None:
    for algorithm in DIGESTS:
        text = PasswordHash.of("secret", b"salt", algorithm).text
        assert PasswordHash.parse(text, None).algorithm == algorithm


# Argon2id.


def slow(password: str | bytes) -> PasswordHash:
    return PasswordHash.argon2id(password, CHEAP)


@pytest.mark.parametrize("password", ["secret", b"secret", b"\xff\x00", "ünïcode", "x" * 10_000])
def test_a_slow_hash_matches_its_password_only_and_survives_a_definition_file(password: str | bytes) -> None:
    kept = PasswordHash.parse(slow(password).text, ARGON2ID)
    assert (kept.algorithm, kept.is_slow) == ("argon2id", True)
    assert kept.matches(password)
    assert not kept.matches(b"secret ")
    assert not kept.matches("")
    assert PasswordHash.parse(kept.text, None) == kept


def test_slow_hashes_of_one_password_differ() -> None:
    assert slow("same") != slow("same")


def test_what_clients_bring_costs_what_rfc_9106_recommends() -> None:
    text = Hashing().kept("secret").text
    assert text.startswith("$argon2id$v=19$m=65536,t=3,p=1$")
    assert argon2.PasswordHasher().verify(text, "secret")  # which any other implementation can check


def test_the_hash_that_nobody_has_costs_as_much_as_everybodys() -> None:
    cost = Cost()
    head, _, _ = Hashing().kept("x").text.rpartition("$")
    assert nobodys(cost).text.rpartition("$")[0].rpartition("$")[0] == head.rpartition("$")[0]
    assert not nobodys(CHEAP).matches("")


WHOLE = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHRzb21lc2FsdA$" + "A" * 43
BAD_ENCODED = [
    (WHOLE.replace("argon2id", "argon2i"), "is not an encoded argon2id string"),
    (WHOLE.replace("v=19", "v=16"), "is not an encoded argon2id string"),
    (WHOLE[:-30], "is not an encoded argon2id string"),
    (WHOLE + "\n", "is not an encoded argon2id string"),
    (WHOLE.replace("65536", "4194304"), "takes 4194304 KiB"),
    (WHOLE.replace("65536", "31"), "takes 31 KiB in 4 lanes"),
    (WHOLE.replace("t=3", "t=33"), "takes 33 passes"),
    (WHOLE.replace("t=3", "t=0"), "takes 0 passes"),
    (WHOLE.replace("p=4", "p=17"), "in 17 lanes"),
    (WHOLE.replace("p=4", "p=0"), "in 0 lanes"),
    (WHOLE.replace("m=65536", "m=99999999"), "is not an encoded argon2id string"),
    ("", "is not an encoded argon2id string"),
]


@pytest.mark.parametrize(("text", "reason"), BAD_ENCODED)
def test_a_slow_hash_that_would_take_too_much_or_is_none_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        PasswordHash.parse(text, ARGON2ID)


def test_a_slow_hash_is_not_shown() -> None:
    kept = slow("secret")
    user = User("u", password=kept)
    for shown in (repr(kept), repr(user), repr(Hashing().with_scram(kept, "secret"))):
        assert kept.text.rpartition("$")[2] not in shown
        assert "secret" not in shown


@pytest.mark.parametrize("algorithm", ["argon2id", "rabbitmq"])
def test_the_configuration_says_how_new_passwords_are_kept(algorithm: str) -> None:
    broker = Broker()
    populate(broker, parse({"security": {"password_hashing": algorithm}}))
    broker.access.hashing = attrs.evolve(broker.access.hashing, cost=CHEAP)
    done: list[PasswordHash | None] = []
    broker.access.hash_soon("secret", done.append)
    [kept] = done
    assert kept is not None
    assert kept.algorithm == ("argon2id" if algorithm == "argon2id" else SHA256)
    assert kept.matches("secret")


def test_users_of_the_configuration_are_there_at_once() -> None:
    broker = Broker()
    populate(broker, parse({"users": [{"name": "a", "password": "b"}]}))
    assert user_of(broker.access, "a").password is not None
    assert not broker.access.has_slow_hashes


def test_a_hash_in_the_configuration_may_be_a_slow_one() -> None:
    broker = Broker()
    populate(broker, parse({"users": [{"name": "a", "password_hash": slow("b").text}]}))
    assert authenticate_password(broker.access, "a", "b") is user_of(broker.access, "a")


def test_without_memory_for_a_hash_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, password: bytes) -> str:
        raise argon2.exceptions.HashingError("Memory allocation error")

    monkeypatch.setattr(argon2.PasswordHasher, "hash", fail)
    done: list[PasswordHash | None] = []
    Access().hash_soon("secret", done.append)
    assert done == [None]


# Checks: at once, remembered, or in a thread.


def waiting(found: User | Waiting | None) -> Waiting:
    assert isinstance(found, Waiting)
    return found


def test_a_quick_hash_is_checked_at_once() -> None:
    access, threads = open_access(), Threads()
    access.off_thread = threads
    assert access.authenticate("u", "secret") is access.user("u")
    assert access.authenticate("u", "wrong") is None
    assert access.authenticate("nobody", "secret") is None
    assert threads.jobs == deque()


def test_a_slow_hash_is_checked_in_a_thread_and_only_once() -> None:
    access, threads = slow_access(u="secret")
    check = waiting(access.authenticate("u", "secret"))
    assert not check.is_there
    assert threads.run() == 1
    assert (check.is_there, check.user) == (True, access.user("u"))
    assert access.authenticate("u", b"secret") is access.user("u")
    assert threads.jobs == deque()


def test_who_waits_is_told_once() -> None:
    access, threads = slow_access(u="secret")
    told: list[str] = []
    check = waiting(access.authenticate("u", "secret"))
    check.tell(lambda: told.append("early"))
    threads.run()
    assert told == ["early"]
    check.tell(lambda: told.append("late"))
    assert told == ["early", "late"]


@pytest.mark.parametrize(
    ("name", "password"),
    [("u", "wrong"), ("nobody", "secret"), ("without", "secret"), ("quick", "wrong"), ("u", "secret\0")],
)
def test_every_refusal_takes_as_long_whoever_is_asked_for(name: str, password: str) -> None:
    access, threads = slow_access(u="secret")
    access.add_user("without")
    access.add_user("quick", "secret")
    for _ in range(2):  # nor is it quicker the next time
        check = waiting(access.authenticate(name, password))
        assert threads.run() == 1
        assert (check.is_there, check.user) == (True, None)


def test_an_empty_password_is_nobodys_and_takes_no_time() -> None:
    access, threads = slow_access(u="secret")
    for name in ("u", "nobody"):
        assert access.authenticate(name, "") is None
    assert threads.jobs == deque()


def test_a_quick_hash_among_slow_ones_is_right_at_once() -> None:
    access, threads = slow_access(u="secret")
    access.add_user("quick", "secret")
    assert access.authenticate("quick", "secret") is access.user("quick")
    assert threads.jobs == deque()


def test_without_slow_hashes_any_more_nothing_takes_long() -> None:
    access, threads = slow_access(u="secret")
    assert access.has_slow_hashes
    access.add_user("u", "secret")
    assert not access.has_slow_hashes
    make_slow(access, u="secret", v="secret")
    access.delete_user("u")
    assert access.has_slow_hashes
    access.delete_user("v")
    assert not access.has_slow_hashes
    assert access.authenticate("v", "secret") is None
    assert threads.jobs == deque()


def test_all_who_ask_the_same_wait_for_one_thread() -> None:
    access, threads = slow_access(u="secret")
    checks = [waiting(access.authenticate("u", "secret")) for _ in range(100)]
    assert threads.run() == 1
    assert {check.user for check in checks} == {access.user("u")}


def test_other_names_and_passwords_are_not_mixed_up() -> None:
    access, threads = slow_access(a="bc", ab="c")
    right = [waiting(access.authenticate(name, password)) for name, password in (("a", "bc"), ("ab", "c"))]
    wrong = [waiting(access.authenticate(name, password)) for name, password in (("a", "c"), ("abc", "x"))]
    assert threads.run() == 4
    assert [check.user for check in right] == [access.user("a"), access.user("ab")]
    assert [check.user for check in wrong] == [None, None]


@pytest.mark.parametrize("change", ["password", "deleted", "quick", "none"])
def test_what_is_remembered_is_forgotten_when_the_user_changes(change: str) -> None:
    access, threads = slow_access(u="secret", v="other")
    access.authenticate("u", "secret")
    threads.run()
    change_user(access, change)
    check = waiting(access.authenticate("u", "secret"))
    threads.run()
    assert check.user is None


def change_user(access: Access, change: str) -> None:
    if change == "password":
        make_slow(access, u="new")
    elif change == "deleted":
        access.delete_user("u")
    else:
        access.add_user("u", "new" if change == "quick" else None)


@pytest.mark.parametrize("change", ["password", "deleted", "quick", "none"])
def test_a_user_who_changes_during_the_check_is_not_let_in_by_it(change: str) -> None:
    access, threads = slow_access(u="secret", v="other")
    check = waiting(access.authenticate("u", "secret"))
    change_user(access, change)
    threads.run()
    assert (check.is_there, check.user) == (True, None)


def test_tags_and_limits_that_change_during_the_check_are_those_of_then() -> None:
    access, threads = slow_access(u="secret")
    check = waiting(access.authenticate("u", "secret"))
    user = access.put_user(attrs.evolve(user_of(access), tags=("management",)))
    threads.run()
    assert check.user is user
    assert access.authenticate("u", "secret") is user  # and the password is still remembered


def test_a_password_that_becomes_right_during_the_check_is_checked_again() -> None:
    access, threads = slow_access(u="old")
    early = waiting(access.authenticate("u", "secret"))
    make_slow(access, u="secret")
    late = waiting(access.authenticate("u", "secret"))
    threads.run()
    assert (early.user, late.user) == (None, access.user("u"))


def test_what_nobody_waits_for_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    access, threads = slow_access(u="secret")
    checks = [waiting(access.authenticate("u", "secret")) for _ in range(2)]
    for check in checks:
        check.tell(lambda: pytest.fail("nobody wants to know"))
        check.drop()
        check.drop()
    monkeypatch.setattr(PasswordHash, "matches", lambda *_: pytest.fail("for nobody"))
    threads.run()
    monkeypatch.undo()
    again = waiting(access.authenticate("u", "secret"))
    threads.run()
    assert again.user is access.user("u")


def test_who_asks_while_a_check_is_given_up_is_answered() -> None:
    access, threads = slow_access(u="secret")
    waiting(access.authenticate("u", "secret")).drop()
    [job] = threads.jobs
    late = waiting(access.authenticate("u", "secret"))
    assert list(threads.jobs) == [job]
    threads.run()
    assert late.user is access.user("u")


def test_who_asks_between_the_thread_and_its_end_is_answered() -> None:
    class Halfway(Threads):
        """The work of a thread is done at once; its end is told by `run`."""

        def __call__(self, work: Callable[[], T], then: Callable[[T], None], /) -> None:
            result = work()
            self.jobs.append(lambda: then(result))

    access, _ = slow_access(u="secret")
    access.off_thread = threads = Halfway()
    known = user_of(access).password
    assert known is not None
    job = Job(b"mark", "u", b"secret", known)
    access.checks._begin(job)  # for nobody
    late = job.join()
    assert threads.run() == 2
    assert late.user is access.user("u")


def place(name: str, may_try: Callable[[], bool] = lambda: True) -> CheckOrigin:
    return CheckOrigin(name, may_try)


def test_the_lines_before_the_threads_are_bounded_together() -> None:
    access, threads = slow_access(u="secret")
    for number in range(JOBS_MAX):
        waiting(access.authenticate("u", str(number), place(f"{number % 10}")))
    with pytest.raises(LimitReached, match="too many passwords"):
        access.authenticate("u", "one more", place("elsewhere"))
    waiting(access.authenticate("u", "0"))  # somebody waits for that anyway
    threads.run()
    waiting(access.authenticate("u", "one more"))


def test_no_place_takes_up_all_there_is() -> None:
    access, _ = slow_access(u="secret")
    for number in range(RUNNING_MAX + LINE_MAX):
        waiting(access.authenticate("u", str(number), place("here")))
    with pytest.raises(LimitReached, match="too many passwords"):
        access.authenticate("u", "one more", place("here"))
    waiting(access.authenticate("u", "secret", place("there")))


def test_places_take_turns() -> None:
    access, threads = slow_access(u="secret")
    checks = [waiting(access.authenticate("u", str(number), place("here"))) for number in range(100)]
    mine = waiting(access.authenticate("u", "secret", place("there")))
    assert len(threads.jobs) == RUNNING_MAX
    while not mine.is_there:
        threads.jobs.popleft()()
    assert mine.user is access.user("u")
    assert sum(check.is_there for check in checks) <= RUNNING_MAX + 1


def test_what_waits_where_too_many_have_failed_meanwhile_is_not_tried() -> None:
    access, threads = slow_access(u="secret")
    failed: list[bool] = []
    checks = [
        waiting(access.authenticate("u", str(number), place("here", lambda: not failed)))
        for number in range(100)
    ]
    mine = waiting(access.authenticate("u", "secret", place("there")))
    failed.append(True)
    assert threads.run() == RUNNING_MAX + 1
    assert [check.was_tried for check in checks] == [True] * RUNNING_MAX + [False] * (100 - RUNNING_MAX)
    assert all(check.is_there and check.user is None for check in checks)
    assert mine.user is access.user("u")


def test_as_many_passwords_are_remembered_as_there_may_be_and_the_last_used_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(password_checks, "REMEMBERED_MAX", 2)
    access, threads = slow_access(a="a", b="b", c="c")

    def logs_in_at_once(name: str) -> bool:
        found = access.authenticate(name, name)
        threads.run()
        return isinstance(found, User)

    assert [logs_in_at_once(name) for name in "ab"] == [False, False]
    assert logs_in_at_once("a")
    assert not logs_in_at_once("c")  # instead of b, whose was used longest ago
    assert [logs_in_at_once(name) for name in "acb"] == [True, True, False]


def test_nothing_that_is_remembered_is_a_password() -> None:
    access, threads = slow_access(u="secret")
    access.authenticate("u", "secret")
    threads.run()
    assert b"secret" not in b"".join(access.checks._remembered)
    other, _ = slow_access(u="secret")
    assert mark_of(access.checks._key, "u", b"secret") != mark_of(other.checks._key, "u", b"secret")


def test_without_threads_a_check_is_done_at_once() -> None:
    access, _ = slow_access(u="secret")
    access.off_thread = inline
    assert access.authenticate("u", "wrong") is None
    assert access.authenticate("u", "secret") is access.user("u")
