"""The sessions of a virtual host by user and name, for as long as they are attached or kept.

A session is known by its user and the name that the client gave it. Its transport may be lost and another one come; in
between it is kept for the timeout that the client asked for. Without a timeout a session ends with its transport, as
most do.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.guests import Guest
from leveret.protocols.amqp010.broker.session import ServedSession
from leveret.protocols.amqp010.codec.commands import DETACH_CODE_SESSION_BUSY
from leveret.protocols.amqp010.machine.contract import AttachRefused, SessionLimits
from leveret.protocols.amqp010.machine.session import Session
from leveret.virtual_host import VirtualHost

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.protocols.amqp010.broker.connection_parts import ConnectionParts

TIMED_OUT: Final = "it was detached for longer than its timeout"
FORBIDDEN: Final = "its user has come back with a token that does not let him read what it reads"
CROWDED_OUT: Final = "its user has too many detached sessions"
DISOWNED: Final = "its user has been deleted"


class _Place:
    """The bookkeeping of one session."""

    __slots__ = ("is_disowned", "name", "parts", "timer")

    def __init__(self, parts: ConnectionParts, name: bytes) -> None:
        self.parts = parts  # the session is counted among the channels of that user
        self.name = name
        self.timer: Timer | None = None  # while it is detached
        self.is_disowned = parts.client.is_disowned  # nobody can resume it

    @property
    def user(self) -> str:
        return self.parts.client.user.name


class Sessions(Guest):
    """Finds, makes, keeps and forgets sessions."""

    def __init__(self, host: VirtualHost) -> None:
        self.broker = host.broker
        self._named: dict[tuple[str, bytes], Session] = {}
        self._places: dict[Session, _Place] = {}
        self._detached: dict[str, dict[Session, None]] = {}  # by user, the longest detached first

    def __iter__(self) -> Iterator[Session]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def attach(self, parts: ConnectionParts, name: bytes, force: bool) -> Session:
        """Return the session of that name, detached: a kept one, one taken from another channel, or a new one.

        Raises AttachRefused if it is in use, and LimitReached if its user may have no more.
        """
        if parts.client.is_disowned:
            return self._make(parts, name)
        session = self._named.get((parts.client.user.name, name))
        if session is not None and session.attached and not session.ended:
            if not force:
                raise AttachRefused(DETACH_CODE_SESSION_BUSY)
            session.detached(DETACH_CODE_SESSION_BUSY)  # this tells the peer that had it
        if session is None or session.ended:
            return self._make(parts, name)
        assert isinstance(session.owner, ServedSession)
        if not session.owner.may_be_of(parts.client):
            self._end(session, FORBIDDEN)
            return self._make(parts, name)
        self._stop_clock(session)
        session.owner.came_in_by(parts.client)
        return session

    def _make(self, parts: ConnectionParts, name: bytes) -> Session:
        parts.client.open_channel()
        settings = parts.config.protocols.amqp010
        owner = ServedSession(parts, name)
        limits = SessionLimits(replay_max_bytes=settings.replay_size_max)
        session = owner.session = Session(name, owner, limits)
        place = self._places[session] = _Place(parts, name)
        if not place.is_disowned:
            self._named[place.user, name] = session
        return session

    def left(self, session: Session) -> None:
        """Note that the session has left its channel: its timeout begins to run, unless it has ended."""
        if session.ended:
            self._forget(session)
            return
        place, broker = self._places[session], self.broker
        if place.is_disowned:
            self._end(session, DISOWNED)
            return
        place.timer = broker.timers.at(broker.now + session.timeout_s, partial(self._time_is_over, session))
        detached = self._detached.setdefault(place.user, {})
        detached[session] = None
        if len(detached) > place.parts.config.protocols.amqp010.detached_sessions_max:
            self._end(next(iter(detached)), CROWDED_OUT)

    def user_deleted(self, name: str) -> None:
        """Free the names of the user's sessions. The detached ones end, and the others when they are detached."""
        for session, place in self._places.items():
            assert isinstance(session.owner, ServedSession)
            if place.user == name and session.owner.client.user.scopes is None:
                place.is_disowned = True
                if self._named.get((name, place.name)) is session:
                    del self._named[name, place.name]
                if not session.attached:
                    self.broker.timers.at(self.broker.now, partial(self._end_disowned, session))

    def _end_disowned(self, session: Session, now: float) -> None:
        if session in self._places:
            self._end(session, DISOWNED)

    def _time_is_over(self, session: Session, now: float) -> None:
        self._end(session, TIMED_OUT)

    def _end(self, session: Session, why: str) -> None:
        session.end(why)
        self._forget(session)

    def _forget(self, session: Session) -> None:
        self._stop_clock(session)
        place = self._places.pop(session)
        name = (place.user, place.name)
        if self._named.get(name) is session:  # and not a new one that has replaced it
            del self._named[name]
        place.parts.client.close_channel()

    def _stop_clock(self, session: Session) -> None:
        place = self._places[session]
        self.broker.timers.cancel(place.timer)
        place.timer = None
        detached = self._detached.get(place.user)
        if detached is not None:
            detached.pop(session, None)
            if not detached:
                del self._detached[place.user]
