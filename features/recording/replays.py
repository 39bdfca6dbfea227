"""The replays of a node: recordings that clients send block by block, each into a virtual host of its own.

The virtual host is made for the replay and serves clients as any other once it has ended. Until then its queues keep
what they are given (`player.py`), and unacknowledged messages stay with the replay.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from leveret.errors import NotFound, PreconditionFailed
from leveret.features.recording.player import PlayedHost, Player
from leveret.features.recording.records import Damaged, RecordReader
from leveret.guests import Guest
from leveret.message import Encoding

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.features.recording.player import ReplayReport


class Replays(Guest):
    """The replays that are under way in one broker ."""

    def __init__(self, broker: Broker) -> None:
        self._players: dict[str, Player] = {}

    def begin(self, broker: Broker, name: str) -> PlayedHost:
        """Make a virtual host for a replay. Raises PreconditionFailed if there is one, TooMany if there is no room."""
        if name in broker.virtual_hosts:
            raise PreconditionFailed(f"vhost '{name}' exists: a recording is played into a new one")
        broker.require_room(name)
        made: dict[str, Encoding] = {}

        def encoding_of(protocol: str) -> Encoding | None:
            factory = broker.encodings.get(protocol)
            if protocol not in made and factory is not None:
                made[protocol] = factory()
            return made.get(protocol)

        host = broker.add_virtual_host(name, kind=PlayedHost)
        assert isinstance(host, PlayedHost), "it was made just now"
        self._players[name] = Player(host, encoding_of)
        return host

    def play(self, broker: Broker, name: str, octets: bytes) -> int:
        """Play the records of a part of a recording, in the format of a file; return how many there were.

        Raises NotFound if no replay is under way, PreconditionFailed if the part is damaged.
        """
        player, reading = self._player(broker, name), RecordReader()
        count = 0
        try:
            for record in reading.records(BytesIO(octets)):
                player.play(record)
                count += 1
        except Damaged as failure:
            raise PreconditionFailed(str(failure)) from None
        if reading.torn:
            raise PreconditionFailed("a block is cut off or damaged")
        return count

    def end(self, broker: Broker, name: str) -> ReplayReport:
        """End a replay: the virtual host is as any other from now on. Raises NotFound if none is under way."""
        player = self._player(broker, name)
        del self._players[name]
        report = player.compare()
        player.release()
        return report

    def _player(self, broker: Broker, name: str) -> Player:
        player = self._players.get(name)
        if player is None or broker.virtual_hosts.get(name) is not player.host:
            self._players.pop(name, None)
            raise NotFound(f"no recording is being played into vhost '{name}'")
        return player
