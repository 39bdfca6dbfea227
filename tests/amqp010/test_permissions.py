"""Permissions of AMQP 0-10 besides those each command needs: what is not told, what is somebody else's, what was
allowed before it was taken away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from leveret.features.xa.branches import Branches
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.types import Vbin32
from tests.harness.bench import ClientBench

from .client import ClientSession, each, ids
from .peer import Peer
from .permitted import (
    DEAD,
    LOCKED,
    NOT_ALLOWED,
    REFUSED,
    XID,
    Row,
    bench,
    declare_exchange,
    declare_queue,
    perform,
    state,
    subscribe,
    transfer,
    user,
)

# Arguments that name an exchange, in every form in which a name can come.


@pytest.mark.parametrize("argument", [DEAD, "x-alternate-exchange"])
@pytest.mark.parametrize("value", [b"other", Vbin32(b"other"), ["other"], {"name": "other"}, 5, None])
def test_an_exchange_that_is_named_by_something_else_than_a_text_is_none(
    argument: str, value: object
) -> None:
    both = bench()
    session = user(both, write="^nothing$")
    perform(session, Row(declare_queue("new", {argument: value})))
    made = both.host.queues.get("new")
    assert made is None or (made.limits.alternate_exchange, made.limits.dead_letter_exchange) == (None, None)


@pytest.mark.parametrize("value", [b"other", Vbin32(b"other"), ["other"], 5])
def test_an_alternate_exchange_that_is_no_text_is_none(value: object) -> None:
    both = bench()
    session = user(both, write="^nothing$")
    perform(session, Row(declare_exchange("new", arguments={"alternate-exchange": value})))
    made = both.host.exchanges.get("new")
    assert made is None or made.alternate is None


def test_stray_octets_in_a_name_are_part_of_the_name_that_is_asked_for() -> None:
    both = bench()
    session = user(both, write="^other$")
    code, _ = perform(session, Row(declare_queue("new", {DEAD: "other\udcff"})))
    assert code == REFUSED
    assert "new" not in both.host.queues


# What is there is not told to who may not know.


PAIRS: Final[dict[str, tuple[c.Command, c.Command]]] = {
    "exchange.declare": (declare_exchange("x", "fanout"), declare_exchange("y", "fanout")),
    "an alternate of an exchange": (
        declare_exchange("new", alternate_exchange="x"),
        declare_exchange("new", alternate_exchange="y"),
    ),
    "an alternate of a queue": (
        declare_queue("new", alternate_exchange="x"),
        declare_queue("new", alternate_exchange="y"),
    ),
    "another alternate of a queue": (
        declare_queue("mortal", alternate_exchange="x"),
        declare_queue("mortal", alternate_exchange="y"),
    ),
    "exchange.delete": (c.ExchangeDelete("x"), c.ExchangeDelete("y")),
    "exchange.delete of an alternate": (c.ExchangeDelete("other"), c.ExchangeDelete("y")),
    "exchange.query": (c.ExchangeQuery("x"), c.ExchangeQuery("y")),
    "exchange.bound": (c.ExchangeBound("x"), c.ExchangeBound("y")),
    "queue.declare": (declare_queue("x"), declare_queue("y")),
    "queue.declare passive": (declare_queue("q", passive=True), declare_queue("y", passive=True)),
    "queue.declare with bad arguments": (
        declare_queue("q", {"x-max-length": "many"}),
        declare_queue("y", {"x-max-length": "many"}),
    ),
    "queue.delete": (c.QueueDelete("q"), c.QueueDelete("y")),
    "queue.delete of another's": (c.QueueDelete("own"), c.QueueDelete("y")),
    "queue.purge": (c.QueuePurge("q"), c.QueuePurge("y")),
    "queue.query": (c.QueueQuery("q"), c.QueueQuery("y")),
    "message.subscribe": (subscribe("q"), subscribe("y")),
    "message.subscribe to another's": (subscribe("own"), subscribe("y")),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("granted", ["^new$", "^(new|mortal)$"])
def test_the_same_is_heard_whether_or_not_it_is_there(
    pair: tuple[c.Command, c.Command], granted: str
) -> None:
    """By somebody who may do what he likes with two names, of which one is taken."""
    heard = []
    for command in pair:
        both = bench()
        Peer(both).open().attach("o").declare("own", exclusive=True)
        code, words = perform(user(both, granted, granted, granted), Row(command))
        heard.append((code, words))
    words = [text.replace(f"'{name}'", "") for (_, text), name in zip(heard, names(pair), strict=True)]
    assert heard[0][0] == heard[1][0] is not None
    assert words[0] == words[1]


def names(pair: tuple[c.Command, c.Command]) -> list[str]:
    """The names that are told apart."""
    fields = ("name", "exchange", "queue", "alternate_exchange")
    told = [{getattr(command, field, None) for field in fields} for command in pair]
    return [next(iter(one - other - {None})) for one, other in (told, reversed(told))]


@pytest.mark.parametrize("key", ["q", "missing"])
def test_the_default_exchange_does_not_tell_who_may_use_it_what_queues_there_are(key: str) -> None:
    both = bench()
    session = user(both, "", "^amq\\.default$", "")
    assert perform(session, Row(c.ExchangeBound("", None, key)))[0] == REFUSED


# Queues of others.


ON_A_QUEUE: Final[dict[str, tuple[Row, int | None]]] = {
    "queue.declare": (Row(declare_queue("own")), LOCKED),
    "queue.declare passive": (Row(declare_queue("own", passive=True)), None),
    "queue.declare passive and exclusive": (Row(declare_queue("own", passive=True, exclusive=True)), LOCKED),
    "queue.declare exclusive": (Row(declare_queue("own", exclusive=True)), LOCKED),
    "queue.query": (Row(c.QueueQuery("own")), None),
    "queue.purge": (Row(c.QueuePurge("own")), LOCKED),
    "queue.delete": (Row(c.QueueDelete("own")), LOCKED),
    "exchange.bind": (Row(c.ExchangeBind("own", "x", "k")), LOCKED),
    "exchange.unbind": (Row(c.ExchangeUnbind("own", "x", "k")), LOCKED),
    "exchange.bound": (Row(c.ExchangeBound("x", "own")), None),
    "message.subscribe": (Row(subscribe("own")), LOCKED),
    "message.subscribe, to look": (Row(subscribe("own", c.ACQUIRE_MODE_NOT_ACQUIRED)), LOCKED),
}


@pytest.mark.parametrize("auto_delete", [False, True])
@pytest.mark.parametrize(("row", "code"), ON_A_QUEUE.values(), ids=ON_A_QUEUE)
def test_the_queue_of_another_session_is_locked_to_who_may_and_refused_to_who_may_not(
    row: Row, code: int | None, auto_delete: bool
) -> None:
    both = bench()
    owner = Peer(both).open().attach("owner's")
    owner.declare("own", exclusive=True, auto_delete=auto_delete)
    owner.publish("own", b"mine")
    before = state(both)
    assert perform(user(both), row)[0] == code
    assert perform(Peer(both).open("u", "u").attach("again"), row)[0] == code, "nor to one of his own name"
    both.broker.access.set_permissions("u", "/", "^$", "^$", "^$")
    assert perform(Peer(both).open("u", "u").attach("refused"), row)[0] == REFUSED
    assert state(both) == before
    assert owner.subscribe("own").bodies() == [b"mine"]


# What somebody holds when his permissions are taken away.


def holding(acquire_mode: int = c.ACQUIRE_MODE_PRE_ACQUIRED) -> tuple[ClientBench, ClientSession]:
    """He has been sent the message of q, and may nothing any more."""
    both = bench()
    session = user(both)
    session.subscribe("q", messages=1, acquire_mode=acquire_mode).get()
    both.broker.access.set_permissions("u", "/", "^$", "^$", "^$")
    return both, session


@pytest.mark.parametrize(
    ("settle", "ready"),
    [(c.MessageAccept, 0), (c.MessageReject, 0), (c.MessageRelease, 1)],
    ids=lambda value: getattr(value, "NAME", ""),
)
def test_what_he_was_sent_he_may_still_answer(settle: Callable[..., c.Command], ready: int) -> None:
    both, session = holding()
    session.call(settle(ids(0)))
    assert (both.queue("q").ready, both.queue("q").unsettled) == (ready, 0)


def test_what_he_was_only_shown_he_cannot_have_any_more() -> None:
    both, session = holding(c.ACQUIRE_MODE_NOT_ACQUIRED)
    assert perform(session, Row(c.MessageAcquire(ids(0)))) == (
        REFUSED,
        "read access to queue 'q' in vhost '/' refused for user 'u'",
    )
    assert (both.queue("q").ready, both.queue("q").unsettled) == (1, 0)


def test_what_he_was_only_shown_he_cannot_have_once_it_is_anothers() -> None:
    both = bench()
    session = user(both)
    session.subscribe("q", messages=1, acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED).get()
    session.call(c.MessageCancel("q"))
    Peer(both).open().attach("o").declare("q", exclusive=True)
    assert perform(session, Row(c.MessageAcquire(ids(0))))[0] == LOCKED
    assert (both.queue("q").ready, both.queue("q").unsettled) == (1, 0)


def test_of_a_queue_that_has_gone_there_is_nothing_to_acquire() -> None:
    both = bench()
    session = user(both)
    session.subscribe("q", messages=1, acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED).get()
    session.call(c.QueueDelete("q"))
    both.broker.access.set_permissions("u", "/", "^$", "^$", "^$")
    assert session.acquire(0) == []


def test_a_reject_goes_where_the_queue_was_allowed_to_send_it_whoever_rejects() -> None:
    """The permission to write there was asked of who declared the queue."""
    both = bench()
    both.queue("mortal")
    guest = Peer(both).open().attach("g")
    guest.declare("grave")
    guest.bind("grave", "other", "mortal")
    guest.publish("mortal", b"m")
    session = user(both, "^$", "^$", "^mortal$")
    session.reject(session.subscribe("mortal").get().id)
    assert [each.message.body for each in both.queue("grave").waiting()] == [b"m"]


def test_what_was_published_in_a_transaction_was_allowed_when_it_came() -> None:
    both = bench()
    session = user(both)
    session.call(c.TxSelect())
    session.publish("q", b"before")
    session.sync()
    both.broker.access.set_permissions("u", "/", "^$", "^$", "^$")
    session.call(c.TxCommit())
    assert both.queue("q").ready == 2
    session.publish("q", b"after")
    assert session.ended().code == REFUSED
    assert both.queue("q").ready == 2


# Topics.


def guarded() -> tuple[ClientBench, ClientSession]:
    both = bench()
    session = Peer(both).open().attach("g")
    session.exchange("t", "topic")
    found = user(both)
    both.broker.access.set_topic_permissions("u", "/", "t", "^yes$", "^yes$")
    return both, found


TOPICS: Final[dict[str, tuple[Row, str]]] = {
    "transfer": (Row(transfer("t"), key="no"), "write access to topic 'no' in exchange 't'"),
    "exchange.bind": (Row(c.ExchangeBind("q", "t", "no")), "read access to topic 'no' in exchange 't'"),
    "exchange.unbind": (Row(c.ExchangeUnbind("q", "t", "no")), "read access to topic 'no' in exchange 't'"),
}
UNGUARDED: Final = (
    Row(transfer("t"), key="yes"),
    Row(transfer("x"), key="no"),
    Row(transfer("amq.topic"), key="no"),
    Row(c.ExchangeBind("q", "t", "yes")),
    Row(c.ExchangeBind("q", "amq.topic", "no")),
    Row(c.ExchangeBound("t", None, "no")),
)


@pytest.mark.parametrize(("row", "text"), TOPICS.values(), ids=TOPICS)
@pytest.mark.parametrize("works_in", [None, c.TxSelect()], ids=["alone", "in a transaction"])
def test_s088_a_topic_that_is_not_allowed(row: Row, text: str, works_in: c.Command | None) -> None:
    both, session = guarded()
    if works_in is not None:
        session.call(works_in)
    before = state(both)
    assert perform(session, row) == (REFUSED, f"{text} in vhost '/' refused for user 'u'")
    assert state(both) == before


@pytest.mark.parametrize("row", UNGUARDED, ids=repr)
def test_s088_topic_permissions_are_for_their_exchange_and_say_nothing_of_others(row: Row) -> None:
    assert perform(guarded()[1], row) == (None, "")


def test_s088_topic_permissions_hold_from_the_next_transfer_on() -> None:
    both, session = guarded()
    row = Row(transfer("t"), key="yes")
    assert perform(session, row)[0] is None
    both.broker.access.set_topic_permissions("u", "/", "t", "^later$", "")
    assert perform(session, row)[0] == REFUSED


# Branches and sessions of other users.


OF_A_BRANCH: Final[tuple[c.Command, ...]] = (
    c.DtxPrepare(XID),
    c.DtxCommit(XID, True),
    c.DtxCommit(XID),
    c.DtxRollback(XID),
    c.DtxForget(XID),
    c.DtxGetTimeout(XID),
    c.DtxSetTimeout(XID, 1),
    c.DtxStart(XID, join=True),
    c.DtxStart(XID, resume=True),
    c.DtxStart(XID),
    c.DtxEnd(XID),
)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("command", OF_A_BRANCH, ids=repr)
def test_the_branch_of_another_user_is_not_to_be_touched(command: c.Command, prepared: bool) -> None:
    both = bench()
    owner = Peer(both).open().attach("branch")
    owner.call(c.DtxSelect())
    owner.call(c.DtxStart(XID))
    owner.publish("q", b"in the branch")
    owner.call(c.DtxEnd(XID))
    if prepared:
        owner.call(c.DtxPrepare(XID))
    session = user(both)
    session.call(c.DtxSelect())
    branch = both.host.guest(Branches).all()[0]
    before = (branch.state, branch.timeout_s, branch.sessions, branch.published, state(both))
    assert perform(session, Row(command))[0] in (REFUSED, NOT_ALLOWED, c.ERROR_CODE_ILLEGAL_STATE)
    assert (branch.state, branch.timeout_s, branch.sessions, branch.published, state(both)) == before
    owner.call(c.DtxCommit(XID, not prepared))
    assert both.queue("q").ready == 2


def test_nobody_is_told_of_branches_of_other_users() -> None:
    both = bench()
    owner = Peer(both).open().attach("branch")
    owner.call(c.DtxSelect())
    owner.call(c.DtxStart(XID))
    owner.call(c.DtxEnd(XID))
    owner.call(c.DtxPrepare(XID))
    told = user(both).call(c.DtxRecover())
    assert isinstance(told, c.RecoverResult)
    assert list(told.in_doubt or []) == []


def test_a_branch_that_was_undone_is_still_its_users() -> None:
    """Nobody else can take its name as long as its user may ask what became of it."""
    both = bench()
    owner = Peer(both).open().attach("branch")
    owner.call(c.DtxSelect())
    owner.call(c.DtxStart(XID))
    owner.call(c.DtxEnd(XID, fail=True))
    owner.call(c.DtxPrepare(XID))
    session = user(both)
    session.call(c.DtxSelect())
    assert perform(session, Row(c.DtxStart(XID)))[0] == REFUSED
    assert isinstance(owner.call(c.DtxRollback(XID)), c.XaResult)


@pytest.mark.parametrize("force", [False, True])
def test_a_session_of_another_user_is_another_session(force: bool) -> None:
    both = bench()
    owner = Peer(both).open().attach("same")
    owner.subscribe("q").get()
    access = both.broker.access
    access.add_user("u", "u")
    access.set_permissions("u", "/", ".*", ".*", ".*")
    session = Peer(both).open("u", "u").attach("same", force=force)
    assert each(session.call(c.MessageAcquire(ids(0))).transfers) == []
    owner.sync()
    assert both.queue("q").unsettled == 1


# The argument `no-local`: whose queue it is not cannot say what passes it by.


@pytest.mark.parametrize("passive", [False, True])
def test_nobody_makes_another_sessions_messages_pass_a_queue_by(passive: bool) -> None:
    both = bench()
    owner = Peer(both).open().attach("owner's")
    owner.declare("aloof", {"no-local": True}, exclusive=True)
    session = user(both)
    perform(session, Row(declare_queue("aloof", {"no-local": True}, passive=passive)))
    session = Peer(both).open("u", "u").attach("publisher")
    session.publish("aloof", b"foreign")
    session.sync()
    owner.publish("aloof", b"local")
    owner.sync()
    assert both.queue("aloof").ready == 1


# Who comes back to a session that was kept.


def kept_session(both: ClientBench) -> ClientSession:
    """Of `boss`, an administrator, on a connection that is lost."""
    both.user("boss", tags=("administrator",))
    session = Peer(both).open("boss", "boss").attach("kept")
    session.control(c.SessionRequestTimeout(60))
    session.call(c.DtxSelect())
    session.declare("sole", {"no-local": True})
    session.subscribe("sole", exclusive=True)
    assert isinstance(session.client, Peer)
    session.client.drop()
    return session


def again(both: ClientBench, session: ClientSession) -> ClientSession:
    peer = Peer(both).open("boss", "boss")
    fresh = peer.sessions[1] = ClientSession(peer, 1, b"kept")
    fresh.control(c.SessionAttach(b"kept"))
    fresh.control(c.SessionExpected(ids(session.next_incoming)))
    fresh.next_id = session.next_id
    fresh.point()
    peer.read()
    return fresh


def test_a_session_that_was_kept_is_no_administrators_once_its_user_is_none() -> None:
    both = bench()
    owner = Peer(both).open().attach("branch")
    owner.call(c.DtxSelect())
    owner.call(c.DtxStart(XID))
    owner.call(c.DtxEnd(XID))
    session = kept_session(both)
    both.broker.access.delete_user("boss")
    both.user("boss")
    assert perform(again(both, session), Row(c.DtxRollback(XID)))[0] == REFUSED
    assert len(both.host.guest(Branches)) == 1


def test_what_is_local_is_so_to_the_connection_that_the_session_came_back_on() -> None:
    both = bench()
    session = kept_session(both)
    back = again(both, session)
    back.declare("aloof", {"no-local": True}, exclusive=True)
    back.publish("aloof", b"local")
    back.client.attach("beside").publish("aloof", b"local too")
    back.sync()
    back.publish("sole", b"local to its only subscriber")
    back.sync()
    assert both.queue("aloof").ready == 0
    assert (both.queue("sole").ready, both.queue("sole").unsettled) == (0, 0)
