"""The sessions of a virtual host by client id, and the groups that share subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.errors import NotAllowed
from leveret.guests import Guest
from leveret.protocols.mqtt.broker.records import SESSIONS, new_record
from leveret.protocols.mqtt.broker.session import Session
from leveret.protocols.mqtt.codec.reason_codes import ADMINISTRATIVE_ACTION, SESSION_TAKEN_OVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.protocols.mqtt.broker.settings import MqttSettings
    from leveret.queues.queue import Queue
    from leveret.virtual_host import VirtualHost


class ClientSessions(Guest):
    """Finds, makes and forgets sessions."""

    def __init__(self, host: VirtualHost) -> None:
        self.host = host
        self._by_client: dict[str, Session] = {}
        self._sharing: dict[str, dict[Session, None]] = {}  # by the name of the queue

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_client.values()))

    def __len__(self) -> int:
        return len(self._by_client)

    def find(self, client_id: str) -> Session | None:
        return self._by_client.get(client_id)

    def open(
        self, client_id: str, user: str, settings: MqttSettings, clean: bool, expiry_s: int
    ) -> tuple[Session, bool]:
        """Return the session of a client, without a connection, and whether it was there before.

        Another connection that has it is closed (MQTT-3.1.4-3). Raises NotAllowed if it is another user's.
        """
        session = self._by_client.get(client_id)
        if session is not None:
            if session.user != user:
                raise NotAllowed(f"the session of client '{client_id}' is another user's")
            session.disconnect(SESSION_TAKEN_OVER, "another connection has taken the session over")
        if session is not None and (clean or session.exchange != settings.exchange):
            session.end()
        if session is None or session.ended:
            return self._add(client_id, user, settings, expiry_s), False
        session.settings = settings
        session.set_expiry(expiry_s)
        return session, True

    def _add(self, client_id: str, user: str, settings: MqttSettings, expiry_s: int) -> Session:
        session = self._by_client[client_id] = Session(self, client_id, user, settings, expiry_s)
        if session.lasts:
            session.record = new_record(self.host, SESSIONS, client_id, session.table(), noted=True)
        return session

    def restore(self, session: Session) -> None:
        """Put a session back that has outlived a restart."""
        self._by_client[session.client_id] = session

    def forget(self, session: Session) -> None:
        """Called when a session has ended."""
        if self._by_client.get(session.client_id) is session:
            del self._by_client[session.client_id]

    # Shared subscriptions.

    def join(self, queue: str, session: Session) -> None:
        """Count a session among those that share a queue."""
        self._sharing.setdefault(queue, {})[session] = None

    def part(self, queue: str, session: Session) -> None:
        """Count a session no more among those that share a queue, which the last one deletes."""
        sharing = self._sharing.get(queue, {})
        sharing.pop(session, None)
        if not sharing:
            self._sharing.pop(queue, None)
            if queue in self.host.queues:
                self.host.delete_queue(self.host.queues[queue])

    def is_shared(self, queue: str) -> bool:
        """Return whether sessions share a queue."""
        return queue in self._sharing

    # What happens elsewhere.

    def queue_deleted(self, queue: Queue) -> None:
        """End the sessions that had a subscription behind a queue: their clients would wait for messages in vain.

        They are told with the code for an administrative action, and find no session when they come back.
        """
        concerned = [each for each in self if each.queue_deleted(queue)]
        if concerned:
            broker = self.host.broker
            broker.timers.at(broker.now, lambda now: _end_all(concerned, queue.described))

    def user_deleted(self, name: str) -> None:
        """End the sessions of a user whose account is deleted."""
        concerned = [each for each in self if each.user == name]
        broker = self.host.broker
        broker.timers.at(broker.now, lambda now: _end_all(concerned, f"user '{name}'"))

    def close(self) -> None:
        """End the sessions, as the virtual host is deleted."""
        for session in self:
            session.will = None
            session.disconnect(ADMINISTRATIVE_ACTION, "the virtual host was deleted")
            session.end()


def _end_all(sessions: list[Session], what: str) -> None:
    for session in sessions:
        session.disconnect(ADMINISTRATIVE_ACTION, f"{what} was deleted")
        session.end()


def sessions_of(host: VirtualHost) -> ClientSessions:
    """Return the sessions of a virtual host."""
    return host.guest(ClientSessions)
