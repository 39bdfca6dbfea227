"""Worlds that are recorded: what tests of recordings have in common."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

from leveret.broker import Broker
from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.standard import STANDARD
from leveret.features.recording.player import Player, ReplayReport, fresh_player
from leveret.features.recording.recordings import Plan, Recordings
from leveret.features.recording.records import RecordKind, RecordReader, SessionRecord
from leveret.features.recording.redaction import Redaction
from leveret.message import Encoding
from leveret.protocols.amqp010.broker.encoding import ENCODING as ENCODING010
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING10
from leveret.server.node.threads import spawned
from tests.harness.bench import ENCODING as PLAIN

ENCODINGS: Final[Mapping[str, Encoding]] = {
    each.name: each for each in (ENCODING010, ENCODING091, ENCODING10, PLAIN)
}
MIB: Final = 1 << 20


class Recorded:
    """The recording of one virtual host, in a folder."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        max_bytes: int = 16 * MIB,
        when_full: str = "rotate",
        redaction: Redaction = Redaction(),  # noqa: B008 - it is frozen
    ) -> None:
        self.recordings = Recordings(broker, spawned)
        self._broker = broker
        status = self.recordings.begin(
            broker.virtual_hosts["/"], Plan(folder, max_bytes, when_full, redaction)
        )
        self.path = Path(str(status["file"]))

    def end(self) -> Path:
        """End the recording, and return its file when that is complete."""
        self.recordings.close()
        return self.path


def records_of(path: Path) -> list[SessionRecord]:
    with path.open("rb") as file:
        return list(RecordReader().records(file))


def kinds_of(path: Path) -> list[RecordKind]:
    return [record.kind for record in records_of(path)]


def replayed(
    path: Path, seed: int | None = None, types: Mapping[str, type[ExchangeType]] = STANDARD
) -> tuple[Player, ReplayReport]:
    """Play a file into a broker in memory, and return the player with its report."""
    player = fresh_player("/", types, ENCODINGS.get, seed)
    for record in records_of(path):
        player.play(record)
    return player, player.compare()


def read_from(octets: bytes) -> tuple[list[SessionRecord], RecordReader]:
    reading = RecordReader()
    return list(reading.records(BytesIO(octets))), reading
