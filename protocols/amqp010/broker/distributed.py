"""Distributed transactions (class dtx, X/Open XA): a session works in branches, and other sessions may decide about
them.

    demarcation    select, start, end               by the session that does the work
    coordination   prepare, commit, rollback,       by any session of the user that started the branch, or of an
                   recover, forget, timeouts        administrator; it need not have selected dtx

The core defines branches, and which operation is allowed when (`features/xa/branch.py`). While the session works in
a branch, its transfers and accepts go there. The deliveries that it has accepted belong to the branch then: a rollback
returns them to their queues, whether or not the session is still there.

An answer is sent only when everything that it reports is on disk. Where the specification and qpidd disagree on an
error, qpidd's is sent, because clients know it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.features.xa.branch import Branch, Verb, Verdict, Xid
from leveret.features.xa.branches import Branches, Participant
from leveret.protocols.amqp010.broker.transactions import Work
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message
    from leveret.protocols.amqp010.broker.session import ServedSession
    from leveret.protocols.amqp010.codec.sequences import Id

ID_MAX: Final = 64  # bytes of each part of an xid
STATUS: Final[dict[Verdict, int]] = {
    Verdict.OK: c.XA_STATUS_XA_OK,
    Verdict.ROLLED_BACK: c.XA_STATUS_XA_RBROLLBACK,
    Verdict.TIMED_OUT: c.XA_STATUS_XA_RBTIMEOUT,
    Verdict.COMMITTED_BY_OPERATOR: c.XA_STATUS_XA_HEURCOM,
    Verdict.ROLLED_BACK_BY_OPERATOR: c.XA_STATUS_XA_HEURRB,
    Verdict.MIXED: c.XA_STATUS_XA_HEURMIX,
}


class InBranch(Work):
    """Takes a session's transfers and accepts while it works in a branch."""

    __slots__ = ("branch",)

    def __init__(self, branch: Branch) -> None:
        self.branch = branch

    def publish(self, exchange: Exchange, message: Message) -> bool:
        return self.branch.publish(exchange, message)

    def accept(self, deliveries: dict[Id, Delivery]) -> None:
        self.branch.accept(list(deliveries.values()))


# Demarcation.


def dtx_select(session: ServedSession, id: Id, command: c.DtxSelect) -> None:
    """Make the session work in branches, once, and not after tx.select."""
    if session.distributed is not None or session.tx is not None:
        raise SessionError(c.ERROR_CODE_ILLEGAL_STATE, "the session is transactional already")
    session.distributed = participant = Participant(session.host, session.client.user)
    session.at_end.append(participant.ended)
    session.complete(id)


def dtx_start(session: ServedSession, id: Id, command: c.DtxStart) -> None:
    """Begin work in a branch. If the branch is rolled back already, the session does not take part in it."""
    participant = _participant(session)
    if command.join and command.resume:
        raise SessionError(c.ERROR_CODE_COMMAND_INVALID, "a session joins a branch or resumes it, not both")
    verdict = participant.start(_xid(command.xid), command.join, command.resume)
    if participant.current is not None:
        session.tx = InBranch(participant.current)
    _answer(session, id, verdict)


def dtx_end(session: ServedSession, id: Id, command: c.DtxEnd) -> None:
    """End work in the branch: the commands that follow are not part of it."""
    participant = _participant(session)
    if command.fail and command.suspend:
        raise SessionError(c.ERROR_CODE_COMMAND_INVALID, "a session suspends its work or fails, not both")
    verdict = participant.end(_xid(command.xid), command.fail, command.suspend)
    if participant.current is None:
        session.tx = None
    _answer(session, id, verdict)


def moved(session: ServedSession) -> None:
    """Called when a session has come to another connection, whose user may have other rights by now."""
    if isinstance(session.distributed, Participant):
        session.distributed.user = session.client.user


def _participant(session: ServedSession) -> Participant:
    if not isinstance(session.distributed, Participant):
        raise SessionError(
            c.ERROR_CODE_COMMAND_INVALID, "the session has not selected distributed transactions"
        )
    return session.distributed


# Coordination.


def dtx_prepare(session: ServedSession, id: Id, command: c.DtxPrepare) -> None:
    _decide(session, id, command.xid, Verb.PREPARE)


def dtx_commit(session: ServedSession, id: Id, command: c.DtxCommit) -> None:
    _decide(session, id, command.xid, Verb.COMMIT_AT_ONCE if command.one_phase else Verb.COMMIT)


def dtx_rollback(session: ServedSession, id: Id, command: c.DtxRollback) -> None:
    _decide(session, id, command.xid, Verb.ROLL_BACK)


def dtx_forget(session: ServedSession, id: Id, command: c.DtxForget) -> None:
    _hold(session)
    _branch(session, command.xid).do(Verb.FORGET)
    session.complete(id)


def dtx_recover(session: ServedSession, id: Id, command: c.DtxRecover) -> None:
    """Answer the branches that are prepared, and those that an operator has decided."""
    _hold(session)
    found = session.host.guest(Branches).in_doubt(session.client.user)
    session.result(id, c.RecoverResult([c.Xid(*each) for each in found]))
    session.complete(id)


def dtx_get_timeout(session: ServedSession, id: Id, command: c.DtxGetTimeout) -> None:
    """Answer the branch's timeout in seconds; 0 means none."""
    session.result(id, c.GetTimeoutResult(_branch(session, command.xid).timeout_s))
    session.complete(id)


def dtx_set_timeout(session: ServedSession, id: Id, command: c.DtxSetTimeout) -> None:
    _branch(session, command.xid).set_timeout(command.timeout or 0)
    session.complete(id)


def _branch(session: ServedSession, xid: c.Xid | None) -> Branch:
    return session.host.guest(Branches).find(_xid(xid), session.client.user)


def _xid(given: c.Xid | None) -> Xid:
    if given is None or given.format is None:
        raise SessionError(c.ERROR_CODE_ILLEGAL_ARGUMENT, "an xid with a format is required", 1)
    xid = Xid(given.format, given.global_id or b"", given.branch_id or b"")
    if max(len(xid.global_id), len(xid.branch_id)) > ID_MAX:
        raise SessionError(
            c.ERROR_CODE_ILLEGAL_ARGUMENT, f"a part of the xid has more than {ID_MAX} octets", 1
        )
    return xid


def _decide(session: ServedSession, id: Id, xid: c.Xid | None, verb: Verb) -> None:
    _hold(session)
    _answer(session, id, _branch(session, xid).do(verb))


def _hold(session: ServedSession) -> None:
    """Let the answer wait for the disk even if nothing is written now: what it reports may not be there yet."""
    if session.broker.journal is not None:
        session.broker.journal.holds = True


def _answer(session: ServedSession, id: Id, verdict: Verdict) -> None:
    session.result(id, c.XaResult(STATUS[verdict]))
    session.complete(id)


HANDLERS: Final[dict[type[c.Command], Callable[..., None]]] = {
    c.DtxSelect: dtx_select,
    c.DtxStart: dtx_start,
    c.DtxEnd: dtx_end,
    c.DtxPrepare: dtx_prepare,
    c.DtxCommit: dtx_commit,
    c.DtxRollback: dtx_rollback,
    c.DtxForget: dtx_forget,
    c.DtxRecover: dtx_recover,
    c.DtxGetTimeout: dtx_get_timeout,
    c.DtxSetTimeout: dtx_set_timeout,
}
