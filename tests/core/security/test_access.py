"""Users, passwords and permissions: yes, no, and the sentence for no."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import AccessRefused, NotFound, PreconditionFailed
from leveret.limits import UserLimits
from leveret.security.access import Access
from leveret.security.permission_book import GRANTS_MAX
from leveret.security.users import Permission, User

CONFIGURE, WRITE, READ = Permission.CONFIGURE, Permission.WRITE, Permission.READ
SALT = b"salt"


def open_access() -> Access:
    """`u` may configure what begins with c, write to what contains w, read nothing."""
    access = Access(random_octets=lambda size: SALT[:size])
    access.add_user("u", "secret")
    access.set_permissions("u", "/", "^c", "w", "")
    return access


@pytest.fixture
def access() -> Access:
    return open_access()


def user_of(access: Access, name: str = "u") -> User:
    user = access.user(name)
    assert user is not None
    return user


PATTERNS: list[tuple[str, str, bool]] = [
    ("", "", True),
    ("", "x", False),
    ("^$", "", True),
    ("^$", "x", False),
    (".*", "anything", True),
    (".*", "", True),
    ("rd", "orders", True),  # searched, not matched whole
    ("^rd", "orders", False),
    ("^(orders|bills)$", "bills", True),
    ("^(orders|bills)$", "bills2", False),
]


@pytest.mark.parametrize(("pattern", "name", "granted"), PATTERNS)
@pytest.mark.parametrize("permission", Permission)
def test_a_pattern_is_searched_for_and_the_empty_one_means_nothing(
    access: Access, permission: Permission, pattern: str, name: str, granted: bool
) -> None:
    chosen = {each.value: pattern if each is permission else "^$" for each in Permission}
    access.set_permissions("u", "/", **chosen)
    assert access.allowed(user_of(access), "/", permission, name) is granted


@given(st.text(alphabet="ab.*", max_size=4), st.text(alphabet="ab.*\n", max_size=4))
def test_a_quoted_pattern_grants_the_names_that_contain_it(part: str, name: str) -> None:
    access = open_access()
    access.set_permissions("u", "/", re.escape(part), "", "")
    assert access.allowed(user_of(access), "/", CONFIGURE, name) == (part in name if part else name == "")


@given(st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=8))
def test_a_remembered_answer_is_the_answer(names: list[str]) -> None:
    access = open_access()
    access.set_permissions("u", "/", "a", "b", "")
    user = user_of(access)
    for name in names:
        assert access.allowed(user, "/", CONFIGURE, name) == ("a" in name)
        assert access.allowed(user, "/", WRITE, name) == ("b" in name)


def test_s087_s098_a_refusal_names_permission_thing_and_user(access: Access) -> None:
    access.check(user_of(access), "/", WRITE, "exchange", "w")
    for permission, kind, name, text in (
        (WRITE, "exchange", "x", "write access to exchange 'x' in vhost '/' refused for user 'u'"),
        (READ, "queue", "q", "read access to queue 'q' in vhost '/' refused for user 'u'"),
        (
            CONFIGURE,
            "exchange",
            "",
            "configure access to exchange 'amq.default' in vhost '/' refused for user 'u'",
        ),
    ):
        with pytest.raises(AccessRefused) as raised:
            access.check(user_of(access), "/", permission, kind, name)
        assert str(raised.value) == text


def test_s087_the_default_exchange_is_checked_as_amq_default(access: Access) -> None:
    access.set_permissions("u", "/", "", r"^amq\.default$", "")
    access.check(user_of(access), "/", WRITE, "exchange", "")


def test_s079_s147_each_missing_permission_of_a_declaration_is_named() -> None:
    """Configure and read on the exchange, write on its alternate: three questions, each with its own refusal."""
    needed = ((CONFIGURE, "x"), (READ, "x"), (WRITE, "ae"))
    for missing, name in needed:
        access = open_access()
        granted = {each.value: "^$" if each is missing else ".*" for each in Permission}
        access.set_permissions("u", "/", **granted)
        for permission, asked in needed:
            assert access.allowed(user_of(access), "/", permission, asked) is (permission is not missing)
        with pytest.raises(AccessRefused) as raised:
            access.check(user_of(access), "/", missing, "exchange", name)
        text = f"{missing.value} access to exchange '{name}' in vhost '/' refused for user 'u'"
        assert str(raised.value) == text


def test_s015_who_has_no_record_may_not_enter(access: Access) -> None:
    access.set_permissions("u", "empty", "", "", "")
    assert access.may_enter(user_of(access), "/")
    assert access.may_enter(user_of(access), "empty")
    assert not access.may_enter(user_of(access), "other")
    access.clear_permissions("u", "/")
    assert not access.may_enter(user_of(access), "/")


def test_a_deleted_user_may_nothing_even_while_connected(access: Access) -> None:
    user = user_of(access)
    assert access.allowed(user, "/", CONFIGURE, "c")
    access.set_topic_permissions("u", "/", "x", "", "")
    assert access.delete_user("u")
    assert not access.delete_user("u")
    assert not access.allowed(user, "/", CONFIGURE, "c")
    assert not access.may_enter(user, "/")
    assert (access.permissions(), access.topic_permissions()) == ([], [])


def test_s008_loopback_users_come_from_this_machine_only(access: Access) -> None:
    guest = access.add_user("guest", "guest")
    assert access.may_connect(guest, peer_is_loopback=True)
    assert not access.may_connect(guest, peer_is_loopback=False)
    assert access.may_connect(user_of(access), peer_is_loopback=False)
    access.set_loopback_users([])
    assert access.may_connect(guest, peer_is_loopback=False)


def test_s088_topic_permissions_restrict_the_keys_of_their_exchange(access: Access) -> None:
    access.set_topic_permissions("u", "/", "x", "^a", "^b")
    user = user_of(access)
    access.check_topic(user, "/", WRITE, "x", "a.1")
    access.check_topic(user, "/", READ, "x", "b.1")
    access.check_topic(user, "/", WRITE, "y", "anything")
    access.check_topic(user, "other", WRITE, "x", "anything")
    with pytest.raises(AccessRefused) as raised:
        access.check_topic(user, "/", WRITE, "x", "b.1")
    assert (
        str(raised.value) == "write access to topic 'b.1' in exchange 'x' in vhost '/' refused for user 'u'"
    )


VARIABLES: list[tuple[str, str, bool]] = [
    ("^{username}$", "a.b", True),
    ("^{username}$", "axb", False),  # a name's characters stand for themselves
    ("^{vhost}-{client_id}-", "/-c+-1", True),
    ("^{vhost}-{client_id}-", "/-cc-1", False),
    ("^{other}", "{other}", True),
    ("^a{2}$", "aa", True),
]


@pytest.mark.parametrize(("pattern", "key", "granted"), VARIABLES)
def test_s088_variables_stand_for_the_connections_own(pattern: str, key: str, granted: bool) -> None:
    access = Access()
    user = access.add_user("a.b")
    access.set_topic_permissions("a.b", "/", "x", pattern, "")
    assert access.topic_allowed(user, "/", WRITE, "x", key, client_id="c+") is granted


def test_topic_permissions_are_cleared_one_by_one_or_together(access: Access) -> None:
    for exchange in ("x", "y", "z"):
        access.set_topic_permissions("u", "/", exchange, "", "")
    assert access.clear_topic_permissions("u", "/", "x")
    assert not access.clear_topic_permissions("u", "/", "x")
    assert [exchange for _, _, exchange, _ in access.topic_permissions()] == ["y", "z"]
    assert access.clear_topic_permissions("u", "/")
    assert access.topic_permissions() == []


def test_s089_the_user_id_is_the_publishers_own(access: Access) -> None:
    access.check_user_id(user_of(access), "u")
    with pytest.raises(PreconditionFailed) as raised:
        access.check_user_id(user_of(access), "a")
    assert str(raised.value) == "user_id property set to 'a' but authenticated user was 'u'"


def test_s089_an_impersonator_may_claim_to_be_anybody(access: Access) -> None:
    before = user_of(access)
    access.add_user("u", "secret", tags=["impersonator"])
    access.check_user_id(before, "a")


CHANGES: list[Callable[[Access], object]] = [
    lambda access: access.add_user("v", limits=UserLimits(max_connections=1)),
    lambda access: access.put_user(User("w")),
    lambda access: access.delete_user("u"),
    lambda access: access.set_permissions("u", "/", "", "", ""),
    lambda access: access.clear_permissions("u", "/"),
    lambda access: access.set_topic_permissions("u", "/", "x", "", ""),
    lambda access: access.clear_topic_permissions("u", "/", "t"),
    lambda access: access.forget_virtual_host("/"),
    lambda access: access.set_loopback_users([]),
    lambda access: access.set_anonymous_user(None),
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_revision_rises_on_every_change(change: Callable[[Access], object], access: Access) -> None:
    access.set_topic_permissions("u", "/", "t", "", "")
    before = access.revision
    change(access)
    assert access.revision == before + 1


def test_questions_and_vain_changes_leave_the_revision(access: Access) -> None:
    before = access.revision
    access.allowed(user_of(access), "/", READ, "q")
    access.clear_permissions("u", "nowhere")
    access.clear_topic_permissions("u", "/")
    access.delete_user("nobody")
    assert access.revision == before


def test_a_virtual_host_is_forgotten_with_its_permissions(access: Access) -> None:
    access.set_permissions("u", "other", "", "", "")
    access.set_topic_permissions("u", "/", "x", "", "")
    access.forget_virtual_host("/")
    assert [(user, host) for user, host, _ in access.permissions()] == [("u", "other")]
    assert access.topic_permissions() == []


def test_remembered_answers_are_bounded(access: Access) -> None:
    user = user_of(access)
    for number in range(GRANTS_MAX + 10):
        access.allowed(user, "/", CONFIGURE, str(number))
    assert len(access._grants) <= GRANTS_MAX


def test_permissions_need_a_user_and_expressions(access: Access) -> None:
    with pytest.raises(NotFound, match="no user 'nobody'"):
        access.set_permissions("nobody", "/", "", "", "")
    with pytest.raises(PreconditionFailed, match=r"'\(' is not a regular expression"):
        access.set_permissions("u", "/", "(", "", "")
    with pytest.raises(PreconditionFailed, match=r"'\*' is not a regular expression"):
        access.set_topic_permissions("u", "/", "x", "*", "")


def test_users_are_listed_by_name(access: Access) -> None:
    access.add_user("a")
    assert [user.name for user in access.users()] == ["a", "u"]
